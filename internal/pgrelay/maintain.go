package pgrelay

import (
	"context"
	"time"
)

const (
	maintainSteps = 10 // repetitions of one statement
	rescueEach    = time.Minute
)

// Maintain implements driver.Maintainer. It looks for work by one statement, and is done if there is none.
func (s *Session) Maintain(ctx context.Context) error {
	if s.held.ranOut() {
		return nil // another session maintains the outbox
	}
	found, err := s.chores.maintain(ctx)
	if err != nil {
		return err
	}
	if found.expired {
		if err := s.cfg.Conns.Transact(ctx, "maintain", Step{SQL: s.cfg.SQL.DropHolds},
			Step{SQL: s.cfg.SQL.DropDead}); err != nil {
			return err
		}
	}
	if err := s.followSome(ctx, found.behind); err != nil {
		return err
	}
	if err := s.rescue(ctx); err != nil {
		return err
	}
	return s.forget(ctx)
}

// forget deletes sent messages that are older than KeepSent.
func (s *Session) forget(ctx context.Context) error {
	if s.cfg.KeepSent <= 0 {
		return nil
	}
	for range maintainSteps {
		var n int64
		err := s.cfg.Conns.Transact(ctx, "forget sent messages", Step{
			SQL: s.cfg.SQL.Forget, Args: []any{s.cfg.KeepSent.Seconds(), maintainRows},
			Changed: func(rows int64) { n = rows },
		})
		if err != nil || n < maintainRows {
			return err
		}
	}
	return nil
}

// followSome parks the messages behind parked ones in those of the shards that are idle.
func (s *Session) followSome(ctx context.Context, behind []int16) error {
	for range maintainSteps {
		shards, done := s.held.borrow(behind)
		n, err := s.follow(ctx, shards)
		done()
		if err != nil || n < followMost {
			return err
		}
	}
	return nil
}

// rescue finishes an Unpark or Discard that crashed midway: it returns the messages that no longer wait behind a parked
// one.
func (s *Session) rescue(ctx context.Context) error {
	shards := s.held.numbers()
	now := time.Now()
	if len(shards) == 0 || !s.chores.rescueDue(now) {
		return nil
	}
	if err := rescue(ctx, s.cfg.Conns, s.cfg.SQL, shards); err != nil {
		return err
	}
	s.chores.rescued(now)
	return nil
}
