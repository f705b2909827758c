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

// outboxQueue opens the sessions of relays.
type outboxQueue struct {
	registrar *registrar // checks the database
	notifier  *notifier
	listener  listener
	conns     relayConns
}

func newOutboxQueue(r *registrar) *outboxQueue {
	n := r.notifier
	return &outboxQueue{
		registrar: r, notifier: n, listener: listener{sessions: n.sessions, wakes: &n.wakes},
		conns: relayConns{sessions: n.sessions},
	}
}

// Open implements driver.Queue. It checks that the database does not lose commits and that the tables exist. The
// sessions of a Store use up to 5 connections besides those of Config.Pool, made with its configuration, and one for
// LISTEN. Hooks of the pool that run at each acquire or release do not run for them: set a role or a search_path in
// AfterConnect. Through a pooler the sessions use Config.Pool.
func (q *outboxQueue) Open(ctx context.Context, opts driver.SessionOptions) (driver.Session, error) {
	if opts.TTL < time.Millisecond {
		return nil, fmt.Errorf("pgxstore: SessionOptions.TTL %v is shorter than 1 ms", opts.TTL)
	}
	if err := q.registrar.check(ctx); err != nil {
		return nil, err
	}
	if err := claims.NumbersAtStart(ctx, q.registrar.checkNumbers); err != nil {
		return nil, err
	}
	conns, leave, err := q.conns.enter(ctx)
	if err != nil {
		return nil, err
	}
	o := &outboxSession{leaveConns: leave}
	o.link.sessions = q.notifier.sessions
	o.link.conns.Store(conns)
	commits, stopWake := q.listener.listen(ctx)
	o.stopWake = stopWake
	o.Session = pgrelay.Open(pgrelay.Config{
		Conns: &o.link, SQL: &q.notifier.outbox, KeepSent: q.notifier.cfg.Outbox.KeepSent, Name: opts.Name,
		TTL:   opts.TTL,
		Wakes: commits, Announced: q.listener.listens.Load, Wake: q.notifier.Wake, HoldsAll: q.notifier.holdsAllUntil,
		Older: q.warnOfAnOlderState,
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

func (q *outboxQueue) warnOfAnOlderState(ctx context.Context, args ...any) {
	q.notifier.cfg.Logger.WarnContext(ctx, "pgxstore: outbox: new messages have sequence numbers below those of earlier ones: the database was set back to an older state, "+
		"for example by an asynchronous failover; the new messages are published, messages whose commits were lost are not", args...)
}

// Outbox returns the operations on this store's outbox: its statistics, and what a person does with messages that a
// relay has parked. Dead letters of consumers are not in the outbox: see DeadLetters.
func (q *outboxQueue) Outbox() outbox.Operations {
	n := q.notifier
	return pgrelay.Operations{
		Database: outboxDatabase{n.sessions}, SQL: &n.outbox, Wake: n.Wake,
		Ready: func(ctx context.Context) error { return n.resolve(ctx, n.cfg.Pool) },
	}
}
