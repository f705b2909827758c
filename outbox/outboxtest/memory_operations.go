package outboxtest

import (
	"bytes"
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/txonce/txonce/outbox"
	"github.com/txonce/txonce/outbox/driver"
)

// Stats implements outbox.Operations.
func (m *Memory) Stats(ctx context.Context) (outbox.Stats, error) {
	if err := m.usable(ctx); err != nil {
		return outbox.Stats{}, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.open()
	now := time.Now()
	m.due(now)
	st := outbox.Stats{Now: now, Topics: map[string]outbox.TopicStats{}}
	for i := range m.shards {
		m.follow(i, now)
		sh := &m.shards[i]
		for _, r := range sh.rows {
			driver.Count(&st, r.Topic, driver.StatePending, 1, r.due(), int64(min(1, len(r.error))), r.error)
		}
		for _, holds := range sh.holds {
			if slices.ContainsFunc(holds, func(h hold) bool { return h.waits(now) }) {
				st.HeldKeys++
			}
		}
	}
	for _, r := range m.delayed {
		driver.Count(&st, r.Topic, driver.StateDelayed, 1, r.due(), 0, "")
	}
	for _, r := range m.parked {
		if r.waiting {
			driver.Count(&st, r.Topic, driver.StateWaiting, 1, r.due(), 0, "")
		} else {
			driver.Count(&st, r.Topic, driver.StateParked, 1, r.due(), 0, "")
		}
	}
	st.Relays = m.living(now)
	return st, nil
}

// due returns since when the message is due.
func (r *row) due() time.Time {
	if r.NotBefore.After(r.Enqueued) {
		return r.NotBefore
	}
	return r.Enqueued
}

func (m *Memory) living(now time.Time) (relays []outbox.RelayStats) {
	for s, until := range m.relays {
		if !until.After(now) {
			continue
		}
		r := outbox.RelayStats{Name: s.opts.Name, Until: until}
		for i := range m.shards {
			if m.shards[i].owner == s {
				r.Shards++
			}
		}
		relays = append(relays, r)
	}
	slices.SortFunc(relays, func(a, b outbox.RelayStats) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), a.Until.Compare(b.Until))
	})
	return relays
}

// Parked implements outbox.Operations.
func (m *Memory) Parked(ctx context.Context, filter outbox.ParkedFilter) ([]outbox.ParkedMessage, error) {
	if err := m.usable(ctx); err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.open()
	var page []outbox.ParkedMessage
	for _, seq := range slices.Sorted(maps.Keys(m.parked)) {
		r := m.parked[seq]
		if seq <= filter.After || filter.Topic != "" && r.Topic != filter.Topic ||
			filter.OrderingKey != "" && r.OrderingKey != filter.OrderingKey ||
			!strings.Contains(r.error, filter.Error) || r.parkedAt.Before(filter.Since) ||
			!filter.Until.IsZero() && !r.parkedAt.Before(filter.Until) {
			continue
		}
		if len(page) == cmp.Or(filter.Limit, 100) {
			break
		}
		p := outbox.ParkedMessage{
			Stored: r.Stored, Error: r.error, Behind: r.behind, Waiting: r.waiting,
			ParkedAt: r.parkedAt,
		}
		p.Payload, p.Headers = bytes.Clone(r.Payload), maps.Clone(r.Headers)
		page = append(page, p)
	}
	return page, nil
}

// Unpark implements outbox.Operations.
func (m *Memory) Unpark(ctx context.Context, seqs ...int64) (int, error) {
	return m.take(ctx, seqs, func(r *row) {
		r.back()
		r.Attempts = 0
		m.insert(r)
	})
}

// Discard implements outbox.Operations.
func (m *Memory) Discard(ctx context.Context, seqs ...int64) (int, error) {
	return m.take(ctx, seqs, func(*row) {})
}

// take removes parked messages, calls then for each, and updates which messages of their keys are held back.
func (m *Memory) take(ctx context.Context, seqs []int64, then func(*row)) (n int, err error) {
	if err := m.usable(ctx); err != nil {
		return 0, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.open()
	var taken []*row
	for _, seq := range seqs {
		if r := m.parked[seq]; r != nil {
			delete(m.parked, seq)
			taken = append(taken, r)
			then(r)
		}
	}
	for _, r := range taken {
		m.hold(r.Shard, r.OrderingKey)
		m.follow(r.Shard, time.Now())
	}
	m.wake(nil)
	return len(taken), nil
}
