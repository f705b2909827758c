package pgrelay

import (
	"context"
	"fmt"

	"github.com/txonce/txonce/internal/shares"
	"github.com/txonce/txonce/outbox/driver"
)

// Settle implements driver.Session.
func (s *Session) Settle(ctx context.Context, outcomes []driver.Outcome) error {
	if len(outcomes) == 0 {
		return nil
	}
	all, err := newSettlement(outcomes)
	if err != nil {
		return err
	}
	var follow []int
	s.held.update(func(held shares.Held) { follow = held.Followed(outcomes) })
	mine, err := s.settle(ctx, all, follow)
	if err != nil {
		return err
	}
	if lost := len(all.shards) - len(mine); lost > 0 {
		s.held.drop(all, mine)
		return fmt.Errorf("%w: %d of %d shards have gone to another relay", driver.ErrLeaseLost, lost, len(all.shards))
	}
	s.held.update(func(held shares.Held) { held.Settle(outcomes) })
	s.giveBackLeaving(ctx)
	return nil
}

// settle returns those of the settlement's shards that the session still holds. If it has lost one, settle has changed
// nothing.
func (s *Session) settle(ctx context.Context, all *settlement, follow []int) (mine []int16, err error) {
	steps := []Step{s.check(all.shards, all.tokens, &mine)}
	steps = append(steps, all.steps(s.cfg.SQL, s.cfg.KeepSent > 0, follow)...)
	err = s.cfg.Conns.Transact(ctx, "settle", steps...)
	return mine, err
}

// check locks those of shards that the session holds with these tokens, and returns them in mine. The statements that
// follow change something only if that are all of them.
func (s *Session) check(shards []int16, tokens []int64, mine *[]int16) Step {
	return Step{SQL: s.cfg.SQL.Check, Args: []any{s.owner, shards, tokens}, Row: func(row shares.Row) error {
		var guard string
		return row.Scan(list{mine}, &guard)
	}}
}

// follow parks messages that wait behind parked ones, among the first rows of each shard. The shards must have no
// leased messages, because a message must not be moved while it is being published.
func (s *Session) follow(ctx context.Context, shards []int) (n int64, err error) {
	numbers, tokens := s.held.tokens(shards) // without those that were lost meanwhile
	if len(numbers) == 0 {
		return 0, nil
	}
	var mine []int16
	park := followIn(s.cfg.SQL, numbers)
	park.Changed = func(rows int64) { n = rows }
	err = s.cfg.Conns.Transact(ctx, "park followers", s.check(numbers, tokens, &mine), park)
	return n, err
}
