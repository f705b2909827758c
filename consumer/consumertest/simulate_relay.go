package consumertest

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/txonce/txonce/internal/sim"
	"github.com/txonce/txonce/outbox"
	"github.com/txonce/txonce/outbox/driver"
	"github.com/txonce/txonce/outbox/relay"
)

// Settings of the relays: their holds end within a few steps.
const (
	leaseTTL       = time.Second
	publishTimeout = 300 * time.Millisecond
)

var errTimeIsOver = errors.New("its time is over")

// relay starts a process with a relay.
func (w *world) relay() {
	p := w.process(roleRelay, w.relay)
	var publishers map[string]outbox.Publisher
	if w.s.Publishers != nil {
		var err error
		if publishers, err = w.s.Publishers(p); err != nil {
			w.sim.Break("Simulation.Publishers: %v", err)
			return
		}
	}
	for topic := range publishers {
		p.topics = append(p.topics, topic)
	}
	r, err := relay.New(relay.Config{
		Queue: processQueue{p}, Publisher: processPublisher{p}, Publishers: publishers, Name: p.Name(),
		Workers: 2, BatchSize: 3,
		LeaseTTL: p.sim.Unlike(leaseTTL), PublishTimeout: p.sim.Unlike(publishTimeout), Backoff: p.Backoff,
		MaxAttempts: 1000, PollMin: p.sim.Unlike(50 * time.Millisecond), HeaderFormat: p.compose,
		Logger: slog.New(slog.DiscardHandler), Trace: &relay.Trace{Lease: p.leaseEvent},
	})
	if err != nil {
		w.sim.Break("make a relay: %v", err)
		return
	}
	w.sim.Go(func() { _ = r.Run(p.ctx) })
}

func (p *Process) leaseEvent(_ context.Context, e relay.LeaseEvent) {
	if e.Err != nil {
		p.sim.Note("lease %s (%v)", e.Kind, e.Err)
	} else if e.Kind != relay.LeaseRenewed {
		p.sim.Note("lease %s", e.Kind)
	}
}

// compose is a boundary between the decision to publish and the call of the publisher.
func (p *Process) compose(m outbox.Stored) map[string]string {
	if p.sim.At("compose", m.ID).Action == "crash" {
		p.sim.Crash()
	}
	return outbox.PlainHeaders(m)
}

// processQueue is the outbox as a relay's process sees it.
type processQueue struct{ p *Process }

// Open implements driver.Queue.
func (q processQueue) Open(ctx context.Context, o driver.SessionOptions) (driver.Session, error) {
	switch q.p.sim.At("open", "").Action {
	case sim.Gone, "refused":
		return nil, errCut
	case "crash":
		q.p.sim.Crash()
		return nil, errCut
	}
	s, err := q.p.of.db.Outbox().Open(ctx, o)
	if err != nil {
		return nil, err
	}
	return &processSession{Session: s, p: q.p, ttl: o.TTL}, nil
}

// processSession is a session as a relay's process sees it.
type processSession struct {
	driver.Session
	p     *Process
	ttl   time.Duration
	until time.Time // the end of its hold, as the process knows it; p.mu guards it, and lost
	lost  time.Time // when the process learned that it has no hold any more; zero: it has not
}

var (
	_ driver.Waker      = (*processSession)(nil)
	_ driver.Maintainer = (*processSession)(nil)
)

// Wake implements driver.Waker.
func (s *processSession) Wake() <-chan struct{} { return s.Session.(driver.Waker).Wake() }

// Maintain implements driver.Maintainer. It is no boundary, because it changes nothing that a rule is about.
func (s *processSession) Maintain(ctx context.Context) error {
	if s.p.sim.Dead() {
		return errCut
	}
	return s.Session.(driver.Maintainer).Maintain(ctx)
}

// Renew implements driver.Session.
func (s *processSession) Renew(ctx context.Context) (driver.Hold, error) {
	began := time.Now()
	f := s.p.sim.At("renew", "")
	switch f.Action {
	case sim.Gone, "cut":
		return driver.Hold{}, errCut
	case "crash":
		s.p.sim.Crash()
		return driver.Hold{}, errCut
	case "outage":
		s.p.of.outage(s.p, f.For)
	}
	hold, err := s.Session.Renew(ctx)
	switch {
	case err != nil:
		s.p.sim.Note("renew fails: %v", err)
		s.learn(err)
		return hold, err
	case f.Action == "answer lost":
		return driver.Hold{}, errCut
	}
	hold.Until = began.Add(s.ttl)
	s.p.mu.Lock()
	s.until = hold.Until
	s.p.mu.Unlock()
	return hold, nil
}

// Lease implements driver.Session.
func (s *processSession) Lease(ctx context.Context, want driver.Want) ([]driver.Leased, error) {
	switch s.p.sim.At("lease", "").Action {
	case sim.Gone, "cut":
		return nil, errCut
	case "crash":
		s.p.sim.Crash()
		return nil, errCut
	}
	leased, err := s.Session.Lease(ctx, want)
	s.learn(err)
	if err != nil || len(leased) == 0 {
		return leased, err
	}
	s.p.mu.Lock()
	for _, l := range leased {
		if l.NotBefore.After(time.Now()) {
			s.p.of.sim.Break("%s leases %s, which must not be published before %v", s.p.Name(), l.ID, l.NotBefore)
		}
		s.p.leased[l.ID] = s
	}
	s.p.mu.Unlock()
	about := aboutLeased(leased)
	switch s.p.sim.At("leased", about).Action {
	case sim.Gone:
		return nil, errCut
	case "crash":
		s.p.sim.Crash()
		return nil, errCut
	}
	return leased, nil
}

// Settle implements driver.Session.
func (s *processSession) Settle(ctx context.Context, outcomes []driver.Outcome) error {
	about := aboutOutcomes(outcomes)
	f := s.p.sim.At("settle", about)
	switch f.Action {
	case sim.Gone, "cut":
		return errCut
	case "crash before":
		s.p.sim.Crash()
		return errCut
	}
	stale := s.p.of.stale(outcomes)
	err := s.Session.Settle(ctx, outcomes)
	if err == nil {
		s.p.of.checkSettled(s.p, about, outcomes, stale)
	}
	said := err
	if err != nil && ctx.Err() != nil { // the limits of a drain and of a settlement may end together
		said = errTimeIsOver
	}
	s.p.sim.Note("settle %s: %v", about, said)
	switch f.Action {
	case "crash after":
		s.p.sim.Crash()
		return errCut
	case "answer lost":
		return errCut
	}
	s.learn(err)
	return err
}

// learn notes when an answer says that the hold is lost.
func (s *processSession) learn(err error) {
	s.p.mu.Lock()
	defer s.p.mu.Unlock()
	if errors.Is(err, driver.ErrLeaseLost) && s.lost.IsZero() {
		s.lost = time.Now()
	}
}

// Close implements driver.Session.
func (s *processSession) Close(ctx context.Context) error {
	switch s.p.sim.At("close", "").Action {
	case sim.Gone, "cut":
		return errCut
	case "crash":
		s.p.sim.Crash()
		return errCut
	}
	s.p.mu.Lock()
	s.until = time.Now() // it gives the hold back, and publishes nothing more
	s.p.mu.Unlock()
	return s.Session.Close(ctx)
}
