package pgxstore

import (
	"context"
	"errors"
	"time"

	"github.com/txonce/txonce/internal/pgrelay"
	"github.com/txonce/txonce/internal/shares"
	"github.com/txonce/txonce/outbox/driver"
)

// Renew implements driver.Session.
func (s *outboxSession) Renew(ctx context.Context) (driver.Hold, error) {
	s.renewing.Lock()
	defer s.renewing.Unlock()
	asked := time.Now()
	state, err := s.extend(ctx)
	if err != nil {
		return driver.Hold{}, err
	}
	s.take(state, asked.Add(s.ttl))

	switch change := state.Change(&s.shares); {
	case change > 0:
		err = s.takeFree(ctx, change)
	case change < 0:
		err = s.giveBack(ctx, -change)
	}
	if err != nil {
		return driver.Hold{}, err // the hold is extended, and the next Renew reads which shards it has
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	hold := driver.Hold{
		Until: s.until, Shards: len(s.held), TotalShards: state.Shards, Relays: 1 + len(state.Others), SameName: state.SameName,
		Announced: s.store.listener.listens.Load(),
	}
	if hold.Shards == hold.TotalShards {
		s.store.holdsAllUntil(s.until)
	} else {
		s.store.holdsAllUntil(time.Time{})
	}
	return hold, nil
}

// extend begins or extends the hold, and reads the state of all shards and sessions.
func (s *outboxSession) extend(ctx context.Context) (shares.State, error) {
	s.mu.Lock()
	begun, closed := s.begun, s.closed
	s.mu.Unlock()
	if closed {
		return shares.State{}, driver.ErrLeaseLost
	}
	state, err := pgrelay.Renew(ctx, inBatch(s.holdTx), &s.store.outbox, s.owner, s.name, s.ttl, begun)
	if errors.Is(err, driver.ErrLeaseLost) {
		s.lost()
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
func (s *outboxSession) take(state shares.State, until time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.begun, s.until = true, until
	s.held.Set(state.Tokens)
	s.marks.Hold(state.Tokens, state.Returned)
}

// takeFree takes up to n shards whose owners have no valid hold.
func (s *outboxSession) takeFree(ctx context.Context, n int) error {
	taken, err := pgrelay.Take(ctx, inBatch(s.holdTx), &s.store.outbox, s.owner, n)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.held.Add(taken)
	return nil
}

// giveBack gives back n shards. It starts with those that have no leased messages. If these are too few, it marks others as
// leaving: they get no new leases, and are given back when their leased messages are settled.
func (s *outboxSession) giveBack(ctx context.Context, n int) error {
	s.mu.Lock()
	idle := s.held.GiveBack(n)
	s.mu.Unlock()
	return s.giveBackNow(ctx, idle)
}

// giveBackLeaving gives back the leaving shards without leased messages. If that fails, the next Renew finds them still held.
func (s *outboxSession) giveBackLeaving(ctx context.Context) {
	s.mu.Lock()
	idle := s.held.RemoveLeaving()
	s.mu.Unlock()
	_ = s.giveBackNow(ctx, idle)
}

func (s *outboxSession) giveBackNow(ctx context.Context, idle []int) error {
	if len(idle) == 0 {
		return nil
	}
	s.store.holdsAllUntil(time.Time{})
	return pgrelay.GiveBack(ctx, inBatch(s.holdTx), &s.store.outbox, s.owner, idle)
}
