package pgrelay

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/txonce/txonce/internal/shares"
	"github.com/txonce/txonce/outbox/driver"
)

const (
	choresEvery  = 200 * time.Millisecond
	maintainGone = 10 * time.Second
	maintainRows = 5000 // rows per statement
	followShards = 16   // shards that one Maintain searches for followers
)

// chores are work that polls depend on: moving delayed messages that are due, and moving the watermark. Maintain does
// them about once a second, so that a poll is one statement. For a caller that has not called Maintain for
// maintainGone, a Lease that polls all shards does them, at most once in choresEvery. Lease also moves the watermark
// after many messages, and more delayed messages when very many are due.
type chores struct {
	session *Session

	doing   sync.Mutex  // serializes do and the moves
	tidied  int         // counts the shards that Maintain has searched for followers; guarded by doing
	dueLeft atomic.Bool // the last moveDue may have left delayed messages that are due

	mu         sync.Mutex
	at         time.Time // when do last began
	maintained time.Time // when Maintain was last called
	rescueAt   time.Time // when Maintain next looks for an Unpark or Discard that crashed
}

// work is what do has found for Maintain.
type work struct {
	expired bool    // there are rows to delete for DropHolds or DropDead
	behind  []int16 // shards with keys that are held back for a parked message
}

// maintain does the chores for Maintain.
func (c *chores) maintain(ctx context.Context) (work, error) {
	c.mu.Lock()
	c.maintained = time.Now()
	c.mu.Unlock()
	c.doing.Lock()
	defer c.doing.Unlock()
	return c.do(ctx, c.session.held.numbers())
}

// before does what a Lease must do before it polls.
func (c *chores) before(ctx context.Context, want driver.Want) error {
	c.mu.Lock()
	all := !want.Notified && time.Since(c.at) >= choresEvery && time.Since(c.maintained) >= maintainGone
	c.mu.Unlock()
	switch { // while Maintain does chores, also if the database does not answer it, Lease polls without
	case all && c.doing.TryLock():
		defer c.doing.Unlock()
		_, err := c.do(ctx, nil)
		return err
	case c.session.marks.Due() && c.doing.TryLock():
		defer c.doing.Unlock()
		return c.moveWatermark(ctx)
	}
	return nil
}

// do looks for chores by one statement, and does them. It also searches some of shards for messages below their
// watermarks, and for keys that are held back. The caller holds doing.
func (c *chores) do(ctx context.Context, shards []int) (found work, err error) {
	c.mu.Lock()
	c.at = time.Now()
	c.mu.Unlock()
	some := []int16{} // not nil, which would be NULL
	for range min(followShards, len(shards)) {
		c.tidied++
		some = append(some, int16(shards[c.tidied%len(shards)]))
	}
	s := c.session
	check := s.marks.NextCheck(s.held.tokens(shards))
	var last, server int64
	var due bool
	var below []int16
	err = s.cfg.Conns.Transact(ctx, "look for maintenance", Step{
		SQL: s.cfg.SQL.Chores, Args: []any{s.owner, some, check.Shards, check.Lows, check.Returned},
		Row: func(row shares.Row) error {
			return row.Scan(&last, &server, &due, &found.expired, list{&found.behind}, list{&below})
		},
	})
	if err != nil {
		return found, err
	}
	s.marks.Notice(ctx, server, last)
	s.marks.Checked(ctx, check, below)
	if s.marks.Behind() {
		if err := c.moveWatermark(ctx); err != nil {
			return found, err
		}
	}
	if due {
		err = c.moveDue(ctx)
	}
	return found, err
}

// moveWatermark moves the watermark above the messages that were committed by now. The caller holds doing.
func (c *chores) moveWatermark(ctx context.Context) error {
	s := c.session
	s.marks.Moving()
	var last, server int64
	var writers []string
	err := s.cfg.Conns.Transact(
		ctx, "move the watermark",
		Step{
			SQL: s.cfg.SQL.Last, Sending: func() { writers = nil },
			Row: func(row shares.Row) error { return row.Scan(&last, &server) },
		},
		Step{SQL: s.cfg.SQL.Writers, Row: func(row shares.Row) error {
			var writer string
			err := row.Scan(&writer)
			writers = append(writers, writer)
			return err
		}},
	)
	if err == nil {
		s.marks.Move(ctx, server, last, writers)
	}
	return err
}

// moveMoreDue is moveDue for Lease. It does nothing while Maintain does chores.
func (c *chores) moveMoreDue(ctx context.Context) error {
	if !c.doing.TryLock() {
		return nil
	}
	defer c.doing.Unlock()
	return c.moveDue(ctx)
}

// moveDue moves the delayed messages that are due, at most maintainRows, and wakes the relays that hold their shards.
// Lease moves the rest when it finds few messages. The caller holds doing.
func (c *chores) moveDue(ctx context.Context) error {
	s := c.session
	var moved int64
	err := s.cfg.Conns.Transact(ctx, "move delayed messages", Step{
		SQL: s.cfg.SQL.Due, Args: []any{maintainRows}, Changed: func(rows int64) { moved = rows },
	})
	c.dueLeft.Store(err == nil && moved == maintainRows)
	if moved > 0 {
		s.cfg.Wake(ctx)
	}
	return err
}

// rescueDue reports whether Maintain must look for an Unpark or Discard that crashed.
func (c *chores) rescueDue(now time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return now.After(c.rescueAt)
}

func (c *chores) rescued(at time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.rescueAt = at.Add(rescueEach)
}
