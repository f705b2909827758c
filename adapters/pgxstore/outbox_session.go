package pgxstore

import (
	"context"
	"fmt"
	"time"

	"github.com/txonce/txonce/internal/claims"
	"github.com/txonce/txonce/internal/pgrelay"
	"github.com/txonce/txonce/outbox"
	"github.com/txonce/txonce/outbox/driver"
)

// Open implements driver.Queue. It checks that the database does not lose commits and that the tables exist. The
// sessions of a Store use up to 5 connections besides those of Config.Pool, made with its configuration, and one for
// LISTEN. Hooks of the pool that run at each acquire or release do not run for them: set a role or a search_path in
// AfterConnect. Through a pooler the sessions use Config.Pool.
func (s *Store) Open(ctx context.Context, opts driver.SessionOptions) (driver.Session, error) {
	if opts.TTL < time.Millisecond {
		return nil, fmt.Errorf("pgxstore: SessionOptions.TTL %v is shorter than 1 ms", opts.TTL)
	}
	if err := s.checkPooler(ctx); err != nil {
		return nil, err
	}
	if err := s.checkSettings(ctx); err != nil {
		return nil, err
	}
	if err := s.checkSchema(ctx); err != nil {
		return nil, err
	}
	if err := claims.NumbersAtStart(ctx, s.checkNumbers); err != nil {
		return nil, err
	}
	conns, leave, err := s.relayConns.enter(ctx, s)
	if err != nil {
		return nil, err
	}
	o := &outboxSession{leaveConns: leave}
	o.link.store = s
	o.link.conns.Store(conns)
	commits, stopWake := s.listen(ctx)
	o.stopWake = stopWake
	o.Session = pgrelay.Open(pgrelay.Config{
		Conns: &o.link, SQL: &s.outbox, KeepSent: s.cfg.Outbox.KeepSent, Name: opts.Name, TTL: opts.TTL,
		Wakes: commits, Announced: s.listener.listens.Load, Wake: s.Wake, HoldsAll: s.holdsAllUntil, Older: s.warnOfAnOlderState,
	})
	return o, nil
}

// outboxSession is a session with its connections.
type outboxSession struct {
	*pgrelay.Session

	link       relayLink
	leaveConns func(context.Context)
	stopWake   func(context.Context)
}

// Close implements driver.Session. Connections that ctx leaves no time to close are closed in the background.
func (s *outboxSession) Close(ctx context.Context) error {
	s.stopWake(ctx)
	defer func() {
		s.link.conns.Store(nil)
		s.leaveConns(ctx)
	}()
	return s.Session.Close(ctx)
}

func (s *Store) warnOfAnOlderState(ctx context.Context, args ...any) {
	s.cfg.Logger.WarnContext(ctx, "pgxstore: outbox: new messages have sequence numbers below those of earlier ones: the database was set back to an older state, "+
		"for example by an asynchronous failover; the new messages are published, messages whose commits were lost are not", args...)
}

// Outbox returns the operations on this store's outbox: its statistics, and what a person does with messages that a
// relay has parked. Dead letters of consumers are not in the outbox: see DeadLetters.
func (s *Store) Outbox() outbox.Operations {
	return pgrelay.Operations{
		Database: outboxDatabase{s}, SQL: &s.outbox, Wake: s.Wake,
		Ready: func(ctx context.Context) error { return s.resolve(ctx, s.cfg.Pool) },
	}
}
