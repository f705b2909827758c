package pgxstore

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/txonce/txonce/internal/shares"
	"github.com/txonce/txonce/outbox"
)

// Renew implements outbox.Session.
func (s *outboxSession) Renew(ctx context.Context) (outbox.Hold, error) {
	s.renewing.Lock()
	defer s.renewing.Unlock()
	asked := time.Now()
	state, err := s.extend(ctx)
	if err != nil {
		return outbox.Hold{}, err
	}
	s.take(state, asked.Add(s.ttl))

	switch change := s.shares.Change(shares.View{Of: state.total, Mine: len(state.mine), Free: state.free, Others: state.others}); {
	case change > 0:
		err = s.takeFree(ctx, change)
	case change < 0:
		err = s.giveBack(ctx, -change)
	}
	if err != nil {
		return outbox.Hold{}, err // the hold is extended, and the next Renew reads who has the shards
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	hold := outbox.Hold{
		Until: s.until, Shards: len(s.held), TotalShards: state.total, Relays: 1 + len(state.others), SameName: state.sameName,
		Announced: s.store.listener.listens.Load(),
	}
	if hold.Shards == hold.TotalShards {
		s.store.holdsAllUntil(s.until)
	} else {
		s.store.holdsAllUntil(time.Time{})
	}
	return hold, nil
}

// holdState is the state that Renew reads.
type holdState struct {
	mine            map[int]int64 // tokens by shard
	returned        map[int]int64 // how often messages have returned, by shard
	free            []int
	others          map[string]int64 // see shares.View
	total, sameName int
}

// extend begins or extends the hold, and reads the state of all shards and sessions.
func (s *outboxSession) extend(ctx context.Context) (state holdState, err error) {
	s.mu.Lock()
	begun, closed := s.begun, s.closed
	s.mu.Unlock()
	if closed {
		return state, outbox.ErrLeaseLost
	}
	state.mine, state.returned, state.others = map[int]int64{}, map[int]int64{}, map[string]int64{}
	alive := false
	err = s.holdTx(ctx, "renew", func(b *pgx.Batch) {
		extended := func(tag pgconn.CommandTag) error {
			alive = tag.RowsAffected() == 1
			return nil
		}
		if begun {
			b.Queue(s.store.outbox.Renew, s.owner, s.ttl.Seconds()).Exec(extended)
		} else {
			b.Queue(s.store.outbox.Begin, s.owner, s.name, s.ttl.Seconds()).Exec(extended)
		}
		b.Queue(s.store.outbox.Relays, s.owner, s.name).Query(func(rows pgx.Rows) error {
			var owner string
			var sameName bool
			var until int64
			_, err := pgx.ForEachRow(rows, []any{&owner, &sameName, &until}, func() error {
				if state.others[owner] = until; sameName {
					state.sameName++
				}
				return nil
			})
			return err
		})
		b.Queue(s.store.outbox.Shards, s.owner).Query(func(rows pgx.Rows) error {
			var n int
			var token, returned int64
			var mine, free bool
			_, err := pgx.ForEachRow(rows, []any{&n, &token, &mine, &free, &returned}, func() error {
				state.total++
				switch {
				case mine:
					state.mine[n], state.returned[n] = token, returned
				case free:
					state.free = append(state.free, n)
				}
				return nil
			})
			return err
		})
	})
	if err == nil && !alive {
		s.lost()
		return state, fmt.Errorf("%w: its hold had expired", outbox.ErrLeaseLost)
	}
	return state, err
}

// lost ends the session after its hold expired: another session may have its shards.
func (s *outboxSession) lost() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	clear(s.held)
	s.store.holdsAllUntil(time.Time{})
}

// take updates the held shards to what the database says.
func (s *outboxSession) take(state holdState, until time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.begun, s.until = true, until
	for n := range s.held {
		if _, mine := state.mine[n]; !mine {
			delete(s.held, n)
		}
	}
	for n, token := range state.mine {
		s.hold(n, token)
		s.held[n].leaving = false
	}
	s.marks.Hold(state.mine, state.returned)
}

// hold adds one shard. The caller holds mu.
func (s *outboxSession) hold(n int, token int64) {
	if sh := s.held[n]; sh == nil || sh.token != token {
		s.held[n] = &heldShard{token: token, scan: scanFirst, leased: map[int64]struct{}{}}
	}
}

// takeFree takes up to n shards whose owners have no valid hold.
func (s *outboxSession) takeFree(ctx context.Context, n int) error {
	taken := map[int]int64{}
	err := s.holdTx(ctx, "take shards", func(b *pgx.Batch) {
		b.Queue(s.store.outbox.LockShards)
		b.Queue(s.store.outbox.DropExpired)
		b.Queue(s.store.outbox.Take, s.owner, n).Query(func(rows pgx.Rows) error {
			var n int
			var token int64
			_, err := pgx.ForEachRow(rows, []any{&n, &token}, func() error {
				taken[n] = token
				return nil
			})
			return err
		})
	})
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for n, token := range taken {
		s.hold(n, token)
	}
	return nil
}

// giveBack gives back n shards. It starts with those that have no leased messages. If these are too few, it marks others as
// leaving: they get no new leases, and are given back when their leased messages are settled.
func (s *outboxSession) giveBack(ctx context.Context, n int) error {
	s.mu.Lock()
	idle := shares.Remove(s.held, n, (*heldShard).idle)
	left := n - len(idle)
	for _, sh := range s.held {
		sh.leaving = left > 0
		left--
	}
	s.mu.Unlock()
	return s.giveBackNow(ctx, idle)
}

// giveBackLeaving gives back the leaving shards without leased messages. If that fails, the next Renew finds them still held.
func (s *outboxSession) giveBackLeaving(ctx context.Context) {
	s.mu.Lock()
	idle := shares.Remove(s.held, len(s.held), func(sh *heldShard) bool { return sh.leaving && sh.idle() })
	s.mu.Unlock()
	_ = s.giveBackNow(ctx, idle)
}

func (s *outboxSession) giveBackNow(ctx context.Context, idle []int) error {
	if len(idle) == 0 {
		return nil
	}
	s.store.holdsAllUntil(time.Time{})
	return s.holdTx(ctx, "give back shards", func(b *pgx.Batch) {
		b.Queue(s.store.outbox.GiveBack, s.owner, idle)
	})
}
