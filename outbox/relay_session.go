package outbox

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// session is one hold on a share of the outbox, from its first Renew until it is given back or lost.
type session struct {
	*Relay
	queue   Session
	hold    atomic.Pointer[Hold]
	renewed chan struct{} // there are other shards now

	// work is the context of what was leased. It ends when the session is lost, and not when Run's does.
	work context.Context
	lose context.CancelCauseFunc
	once sync.Once

	warned bool // of a namesake

	stopBy time.Time // what Run promises; from drain on
}

// Bounds of calls to the Queue, for connections that hang, and how often things are done.
const (
	openTimeout  = 10 * time.Second
	closeTimeout = 2 * time.Second  // of a session that holds nothing any more; the least of others
	mostClose    = 10 * time.Second // of one whose shards others would have to wait for, if there is time
	mostRenew    = 5 * time.Second  // between two Renews: shards of a relay that left must not wait for long
	unevenRenew  = time.Second      // while the relays do not hold fair shares
	tidyEvery    = time.Second
)

var errRanOut = errors.New("it was not renewed in time")

// open begins a session and its hold.
func (r *Relay) open(ctx context.Context) (*session, error) {
	opening, cancel := context.WithTimeout(ctx, max(r.cfg.LeaseTTL, openTimeout))
	defer cancel()
	queue, err := r.cfg.Queue.Open(opening, SessionOptions{Name: r.cfg.Name, TTL: r.cfg.LeaseTTL})
	if err == nil {
		var hold Hold
		if hold, err = queue.Renew(opening); err == nil {
			r.outages.over(ctx, opOpen)
			s := &session{Relay: r, queue: queue, renewed: make(chan struct{}, 1)}
			s.work, s.lose = context.WithCancelCause(context.WithoutCancel(ctx))
			s.held(hold)
			return s, nil
		}
		_ = leave(ctx, queue, closeTimeout) // it holds nothing, or not for long
	}
	return nil, fmt.Errorf("outbox: open a session: %w", err)
}

// serve keeps the hold while dispatch runs, and gives it back.
func (s *session) serve(ctx context.Context, dispatch func()) {
	keeping, stop := context.WithCancel(s.work)
	var keepers sync.WaitGroup
	keepers.Go(func() { s.keep(keeping) })
	if tidier, ok := s.queue.(Maintainer); ok {
		keepers.Go(func() { s.tidy(keeping, tidier) })
	}
	dispatch()
	stop()
	keepers.Wait()
	lost, within := s.work.Err() != nil && !errors.Is(context.Cause(s.work), errOverdue), closeTimeout
	if !lost {
		within = max(within, min(s.cfg.LeaseTTL/3, mostClose, time.Until(s.stopBy)))
	}
	if err := leave(ctx, s.queue, within); err != nil && !lost && !errors.Is(err, ErrLeaseLost) {
		s.cfg.Logger.WarnContext(ctx, "outbox: could not give back the lease; its shards wait until it has run out", "relay", s.cfg.Name, "error", err)
	}
	s.lose(nil)
}

// keep renews the hold until ctx ends or it is lost. It never begins a Renew by which time the hold has run out.
func (s *session) keep(ctx context.Context) {
	for wait(ctx, s.renewIn()) {
		for failures := 0; ; {
			left := time.Until(s.hold.Load().Until)
			if left <= 0 {
				s.lost(errRanOut)
				return
			}
			renewing, cancel := context.WithTimeout(s.work, min(s.cfg.LeaseTTL/3, left))
			hold, err := s.queue.Renew(renewing)
			cancel()
			if err == nil {
				s.outages.over(ctx, opRenew)
				s.held(hold)
				break
			}
			if errors.Is(err, ErrLeaseLost) {
				s.lost(err)
				return
			}
			failures++
			s.queueFailed(ctx, opRenew, fmt.Errorf("outbox: renew the lease: %w", err))
			if !wait(ctx, min(queueBackoff(failures), s.cfg.LeaseTTL/10, max(0, time.Until(s.hold.Load().Until)))) {
				return
			}
		}
	}
}

// renewIn is sooner when shards are to come or to go.
func (s *session) renewIn() time.Duration {
	every := min(s.cfg.LeaseTTL/3, mostRenew)
	if h := s.hold.Load(); h.Relays > 1 && (h.Shards < h.TotalShards/h.Relays || h.Shards > (h.TotalShards+h.Relays-1)/h.Relays) {
		every = min(every, unevenRenew)
	}
	return every
}

func (s *session) held(hold Hold) {
	before := s.hold.Swap(&hold)
	if before == nil || before.Shards < hold.Shards {
		select {
		case s.renewed <- struct{}{}:
		default:
		}
	}
	if hold.SameName > 0 && !s.warned {
		s.warned = true
		s.cfg.Logger.WarnContext(s.work, "outbox: another relay is alive under the same name, or has died within the last Config.LeaseTTL; both work, but people cannot tell them apart",
			"relay", s.cfg.Name, "others", hold.SameName)
	}
	s.trace(s.work, onRenewed, Event{Hold: hold})
}

// lost ends the session: what is in flight is cut off, and its completions count no more.
func (s *session) lost(err error) {
	s.once.Do(func() {
		if !errors.Is(err, ErrLeaseLost) {
			err = fmt.Errorf("%w: %w", ErrLeaseLost, err)
		}
		s.lose(err)
		s.cfg.Logger.WarnContext(s.work, "outbox: lease lost; what was in flight may be published twice", "relay", s.cfg.Name, "error", err)
		s.trace(s.work, onLeaseLost, Event{Err: err})
	})
}

// tidy has the upkeep done. It is apart from keep, because a slow one must not delay Renew.
func (s *session) tidy(ctx context.Context, tidier Maintainer) {
	for wait(ctx, tidyEvery) {
		tidying, cancel := context.WithTimeout(ctx, s.cfg.LeaseTTL)
		err := tidier.Maintain(tidying)
		cancel()
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			s.queueFailed(ctx, opTidy, fmt.Errorf("outbox: tidy: %w", err))
		default:
			s.outages.over(ctx, opTidy)
		}
	}
}

// leave closes a session, also after ctx has ended. If that fails, others wait for the end of the hold.
func leave(ctx context.Context, queue Session, within time.Duration) error {
	closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), within)
	defer cancel()
	return queue.Close(closing)
}
