package pgrelay

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/internal/shares"
	"github.com/txonce/txonce/outbox/driver"
)

// Renew implements driver.Session.
func (s *Session) Renew(ctx context.Context) (driver.Hold, error) {
	s.renewing.Lock()
	defer s.renewing.Unlock()
	state, asked, err := s.extend(ctx)
	if err != nil {
		return driver.Hold{}, err
	}
	s.held.renewed(&state, asked.Add(s.cfg.TTL))
	s.marks.Hold(state.Tokens, state.Returned)

	switch change := state.Change(&s.ledger); {
	case change > 0:
		err = s.take(ctx, change)
	case change < 0:
		err = s.giveBack(ctx, -change)
	}
	if err != nil {
		return driver.Hold{}, err // the hold is extended, and the next Renew reads which shards it has
	}
	until, n := s.held.summary()
	if n == state.Shards {
		s.cfg.HoldsAll(until)
	} else {
		s.cfg.HoldsAll(time.Time{})
	}
	return driver.Hold{
		Until: until, Shards: n, TotalShards: state.Shards, Relays: 1 + len(state.Others), SameName: state.SameName,
		Announced: s.cfg.Announced(),
	}, nil
}

// extend begins or extends the hold, and reads the state of all shards and sessions. asked is a time before the hold
// was extended.
func (s *Session) extend(ctx context.Context) (state shares.State, asked time.Time, err error) {
	begun, closed := s.held.state()
	if closed {
		return state, asked, driver.ErrLeaseLost
	}
	alive := false
	hold := Step{SQL: s.cfg.SQL.Begin, Args: []any{s.owner, s.cfg.Name, s.cfg.TTL.Seconds()}}
	if begun {
		hold = Step{SQL: s.cfg.SQL.Renew, Args: []any{s.owner, s.cfg.TTL.Seconds()}}
	}
	hold.Sending = func() { asked, state = time.Now(), shares.NewState() }
	hold.Changed = func(rows int64) { alive = rows == 1 }
	err = s.cfg.Conns.Hold(
		ctx, "renew", hold, Step{SQL: s.cfg.SQL.Restart},
		Step{
			SQL: s.cfg.SQL.Relays, Args: []any{s.owner, s.cfg.Name},
			Row: func(row shares.Row) error { return state.ScanRelay(row) },
		},
		Step{SQL: s.cfg.SQL.Shards, Args: []any{s.owner}, Row: func(row shares.Row) error { return state.ScanReturned(row) }},
	)
	switch {
	case err != nil:
	case !alive:
		err = fmt.Errorf("%w: the hold has expired", driver.ErrLeaseLost)
	case state.Shards == 0:
		return state, asked, fmt.Errorf("%w: table txonce_shards is empty: apply txonce's migrations", dedup.ErrSchema)
	}
	if errors.Is(err, driver.ErrLeaseLost) {
		s.held.end() // another session may have the shards
		s.cfg.HoldsAll(time.Time{})
	}
	return state, asked, err
}

// take takes up to n shards whose owners have no valid hold.
func (s *Session) take(ctx context.Context, n int) error {
	var taken map[int]int64
	err := s.cfg.Conns.Hold(
		ctx, "take shards",
		Step{SQL: s.cfg.SQL.LockShards, Sending: func() { taken = map[int]int64{} }}, Step{SQL: s.cfg.SQL.DropExpired},
		Step{SQL: s.cfg.SQL.Take, Args: []any{s.owner, n}, Row: func(row shares.Row) error {
			var shard int
			var token int64
			err := row.Scan(&shard, &token)
			taken[shard] = token
			return err
		}},
	)
	if err == nil {
		s.held.update(func(held shares.Held) { held.Add(taken) })
	}
	return err
}

// giveBack gives back n shards. It starts with those that have no leased messages. If these are too few, it marks
// others as leaving: they get no new leases, and are given back when their leased messages are settled.
func (s *Session) giveBack(ctx context.Context, n int) error {
	var idle []int
	s.held.update(func(held shares.Held) { idle = held.GiveBack(n) })
	return s.giveBackNow(ctx, idle)
}

// giveBackLeaving gives back the leaving shards without leased messages. If that fails, the next Renew finds them still
// held.
func (s *Session) giveBackLeaving(ctx context.Context) {
	var idle []int
	s.held.update(func(held shares.Held) { idle = held.RemoveLeaving() })
	_ = s.giveBackNow(ctx, idle)
}

func (s *Session) giveBackNow(ctx context.Context, idle []int) error {
	if len(idle) == 0 {
		return nil
	}
	s.cfg.HoldsAll(time.Time{})
	return s.cfg.Conns.Hold(ctx, "give back shards", Step{SQL: s.cfg.SQL.GiveBack, Args: []any{s.owner, idle}})
}
