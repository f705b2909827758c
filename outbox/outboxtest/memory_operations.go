package outboxtest

import (
	"bytes"
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	"github.com/txonce/txonce/outbox"
)

// Stats implements outbox.Operations.
func (m *Memory) Stats(ctx context.Context) (outbox.Stats, error) {
	if err := context.Cause(ctx); err != nil {
		return outbox.Stats{}, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.open()
	now := time.Now()
	m.due(now)
	st := outbox.Stats{Now: now, Topics: map[string]outbox.TopicStats{}}
	count := func(r *row, total *int64, field func(*outbox.TopicStats) *int64) {
		*total++
		topic := st.Topics[r.Topic]
		*field(&topic)++
		st.Topics[r.Topic] = topic
	}
	for i := range m.shards {
		m.follow(i, now)
		sh := &m.shards[i]
		for _, r := range sh.rows {
			count(r, &st.Pending, func(t *outbox.TopicStats) *int64 { return &t.Pending })
			if st.Oldest.IsZero() || r.Enqueued.Before(st.Oldest) {
				st.Oldest = r.Enqueued
			}
		}
		for _, holds := range sh.holds {
			if slices.ContainsFunc(holds, func(h hold) bool { return h.until.IsZero() || h.until.After(now) }) {
				st.HeldKeys++
			}
		}
	}
	for _, r := range m.delayed {
		count(r, &st.Delayed, func(t *outbox.TopicStats) *int64 { return &t.Delayed })
	}
	for _, r := range m.parked {
		if r.waiting {
			count(r, &st.Waiting, func(t *outbox.TopicStats) *int64 { return &t.Waiting })
		} else {
			count(r, &st.Parked, func(t *outbox.TopicStats) *int64 { return &t.Parked })
		}
	}
	st.Relays = m.living(now)
	return st, nil
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
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.open()
	var page []outbox.ParkedMessage
	for _, seq := range slices.Sorted(maps.Keys(m.parked)) {
		r := m.parked[seq]
		if seq <= filter.After || filter.Topic != "" && r.Topic != filter.Topic || filter.Key != "" && r.Key != filter.Key {
			continue
		}
		if len(page) == cmp.Or(filter.Limit, 100) {
			break
		}
		p := outbox.ParkedMessage{Leased: r.Leased, Cause: r.cause, Behind: r.behind, Waiting: r.waiting, ParkedAt: r.parkedAt}
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

// take removes parked messages, and then sees what of their keys has to wait still.
func (m *Memory) take(ctx context.Context, seqs []int64, then func(*row)) (n int, err error) {
	if err := context.Cause(ctx); err != nil {
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
		m.hold(r.Shard, r.Key)
		m.follow(r.Shard, time.Now())
	}
	m.wake(nil)
	return len(taken), nil
}
