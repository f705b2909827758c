package outboxtest

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/txonce/txonce/outbox/driver"
)

// Lease implements driver.Session.
func (s *session) Lease(ctx context.Context, want driver.Want) ([]driver.Leased, error) {
	if err := s.memory.usable(ctx); err != nil {
		return nil, err
	}
	if want.Limit <= 0 {
		return nil, fmt.Errorf("outboxtest: Want.Limit is %d: want at least 1", want.Limit)
	}
	m := s.memory
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now()
	if s.over {
		return nil, driver.ErrLeaseLost
	}
	m.due(now)
	var found []turn
	var scanned []int
	for _, i := range s.part(max(want.Groups, 1)) {
		if want.Notified && !s.told[i] {
			continue
		}
		scanned = append(scanned, i)
		m.follow(i, now)
		for n, r := range m.shards[i].next(now, want.Limit) {
			found = append(found, turn{r, n})
		}
	}
	slices.SortFunc(found, func(a, b turn) int { return cmp.Or(cmp.Compare(a.n, b.n), cmp.Compare(a.Seq, b.Seq)) })

	var leased []driver.Leased
	room := want.Bytes
	for _, r := range found {
		room -= size(r.row)
		if len(leased) == want.Limit || want.Bytes > 0 && room < 0 && len(leased) > 0 {
			break
		}
		l := r.Leased
		l.Token = m.shards[r.Shard].token
		l.Payload, l.Headers = bytes.Clone(r.Payload), maps.Clone(r.Headers)
		leased = append(leased, l)
	}
	if err := context.Cause(ctx); err != nil { // the caller gets no answer, so nothing is leased
		return nil, err
	}
	for _, i := range scanned {
		delete(s.told, i)
	}
	for _, l := range leased {
		if s.leased[l.Shard] == nil {
			s.leased[l.Shard] = map[int64]bool{}
		}
		s.leased[l.Shard][l.Seq] = true
	}
	slices.SortFunc(leased, func(a, b driver.Leased) int { return cmp.Compare(a.Seq, b.Seq) })
	return leased, nil
}

// turn is the nth due row of its shard. Lease takes the first due row of each shard, then the second, so that a backlog
// in one shard leaves room for the others.
type turn struct {
	*row
	n int
}

func size(r *row) int {
	n := len(r.Payload) + len(r.OrderingKey)
	for name, value := range r.Headers {
		n += len(name) + len(value)
	}
	return n
}

// part returns the shards to scan: those of this call's group that the session holds and that have no leased messages.
func (s *session) part(parts int) (shards []int) {
	turn := s.turn % parts
	if parts > 1 {
		s.turn = turn + 1
	}
	n := 0
	for i := range s.memory.shards {
		if s.memory.shards[i].owner != s {
			continue
		}
		if n%parts == turn && len(s.leased[i]) == 0 && !s.leaving[i] {
			shards = append(shards, i)
		}
		n++
	}
	return shards
}

// next returns the first due messages.
func (sh *shard) next(now time.Time, limit int) (found []*row) {
	for _, r := range sh.rows {
		if len(found) == limit {
			break
		}
		if r.OrderingKey == "" && r.retryAt.After(now) && !r.failedAt.After(now) ||
			r.OrderingKey != "" && sh.holds[r.OrderingKey] != nil && sh.held(r, now) {
			continue
		}
		found = append(found, r)
	}
	return found
}

// held reports whether r is held back, and deletes expired holds.
func (sh *shard) held(r *row, now time.Time) bool {
	holds := slices.DeleteFunc(sh.holds[r.OrderingKey], func(h hold) bool { return !h.waits(now) })
	if len(holds) == 0 {
		delete(sh.holds, r.OrderingKey)
		return false
	}
	sh.holds[r.OrderingKey] = holds
	return slices.ContainsFunc(holds, func(h hold) bool { return r.Seq >= h.from })
}

// waits reports whether a hold is not over. One that begins in the future was set before the clock was set back.
func (h hold) waits(now time.Time) bool {
	return h.until.IsZero() || h.until.After(now) && !h.setAt.After(now)
}

// follow parks the messages behind a parked message of their key.
func (m *Memory) follow(i int, now time.Time) {
	sh := &m.shards[i]
	endless := false
	for _, holds := range sh.holds {
		endless = endless || slices.ContainsFunc(holds, func(h hold) bool { return h.until.IsZero() })
	}
	if !endless {
		return
	}
	sh.rows = slices.DeleteFunc(sh.rows, func(r *row) bool {
		for _, h := range sh.holds[r.OrderingKey] {
			if r.OrderingKey != "" && h.until.IsZero() && r.Seq >= h.from {
				r.behind, r.waiting, r.parkedAt = h.from, !h.park, now
				r.error = fmt.Sprintf("stands behind message %d of its key", h.from)
				m.parked[r.Seq] = r
				return true
			}
		}
		return false
	})
}
