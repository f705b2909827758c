package outboxtest

import (
	"context"
	"maps"
	"slices"
)

// Snapshot is what a Memory had committed at some time.
type Snapshot struct {
	seq     int64
	shards  []shard // without owners
	delayed []*row
	parked  map[int64]*row
	sent    []*row
}

// Snapshot returns what is committed now, as a standby has it whose replication stops, or a backup.
func (m *Memory) Snapshot() *Snapshot {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.open()
	s := &Snapshot{seq: m.seq, shards: slices.Clone(m.shards), delayed: m.delayed, parked: m.parked, sent: m.sent}
	return s.copy()
}

// Restore makes m what it was at the time of s: commits since then are lost. The sessions are over.
func (m *Memory) Restore(s *Snapshot) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.open()
	for other := range m.relays {
		other.over = true
	}
	clear(m.relays)
	c := s.copy()
	m.seq, m.shards, m.delayed, m.parked, m.sent = c.seq, c.shards, c.delayed, c.parked, c.sent
	m.wake(nil)
}

// copy copies all rows, which a Memory changes in place.
func (s *Snapshot) copy() *Snapshot {
	rows := func(from []*row) []*row {
		to := make([]*row, len(from))
		for i, r := range from {
			c := *r
			to[i] = &c
		}
		return to
	}
	c := &Snapshot{
		seq: s.seq, shards: slices.Clone(s.shards), delayed: rows(s.delayed), parked: map[int64]*row{},
		sent: rows(s.sent),
	}
	for i := range c.shards {
		sh := &c.shards[i]
		sh.owner, sh.rows, sh.holds = nil, rows(sh.rows), maps.Clone(sh.holds)
		for key, holds := range sh.holds {
			sh.holds[key] = slices.Clone(holds)
		}
	}
	for seq, r := range s.parked {
		p := *r
		c.parked[seq] = &p
	}
	return c
}

// Stop makes all calls fail with err until Start, except those of transactions.
func (m *Memory) Stop(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.down = err
}

// Start ends Stop.
func (m *Memory) Start() { m.Stop(nil) }

// usable returns why a call fails: its ctx has ended, or the outbox is stopped.
func (m *Memory) usable(ctx context.Context) error {
	if err := context.Cause(ctx); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.down
}
