package relay

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/txonce/txonce/internal/await"
	"github.com/txonce/txonce/internal/backoff"
	"github.com/txonce/txonce/internal/losses"
	"github.com/txonce/txonce/outbox/driver"
)

// session is one driver.Session, from its first Renew until its shards are given back or lost.
type session struct {
	relay     *Relay
	queue     driver.Session
	hold      atomic.Pointer[driver.Hold] // written by open, then by keepRenewing
	newShards chan struct{}               // has a value after Renew returned more shards than before
	paused    pausedKeys
	losses    *losses.Watch // nil in RunOnce

	// work is the context of leased messages. It ends when the lease is lost, not when Run's context does.
	work     context.Context
	endWork  context.CancelCauseFunc
	loseOnce sync.Once

	warnedSameName bool      // written by open, then by keepRenewing
	drainDeadline  time.Time // written by drain, before serve gives the shards back
}

// Limits of calls to the Queue, whose connection may hang, and intervals.
const (
	openTimeout      = 10 * time.Second
	closeTimeout     = 2 * time.Second  // of a session that holds nothing any more; the least of others
	maxCloseTimeout  = 10 * time.Second // of a session whose shards other relays would have to wait for
	maxRenewIn       = 5 * time.Second  // a relay takes the shards of one that left when it renews
	unevenRenewIn    = time.Second      // while the relays do not hold fair shares
	maintainInterval = time.Second

	fewRelays = 3 // see shared
	maxShared = 6 // how much longer than for few relays an interval gets
)

var errHoldExpired = errors.New("it was not renewed in time")

// open opens a session and takes its first shards.
func (r *Relay) open(ctx context.Context) (*session, error) {
	opening, cancel := context.WithTimeout(ctx, max(r.cfg.LeaseTTL, openTimeout))
	defer cancel()
	queue, err := r.cfg.Queue.Open(opening, driver.SessionOptions{Name: r.cfg.Name, TTL: r.cfg.LeaseTTL})
	if err == nil {
		var hold driver.Hold
		if hold, err = queue.Renew(opening); err == nil {
			r.outages.reopened(ctx)
			s := &session{relay: r, queue: queue, newShards: make(chan struct{}, 1)}
			s.work, s.endWork = context.WithCancelCause(context.WithoutCancel(ctx))
			s.renewed(hold)
			return s, nil
		}
		_ = closeSession(ctx, queue, closeTimeout) // it holds nothing, or not for long
	}
	return nil, fmt.Errorf("relay: open a session: %w", err)
}

// serve renews the hold while dispatch runs, and then gives the shards back.
func (s *session) serve(ctx context.Context, dispatch func()) {
	upkeep, stop := context.WithCancel(s.work)
	var running sync.WaitGroup
	running.Go(func() { s.keepRenewing(upkeep) })
	if maintainer, ok := s.queue.(driver.Maintainer); ok {
		running.Go(func() { s.keepTidying(upkeep, maintainer) })
	}
	dispatch()
	stop()
	running.Wait()
	lost, within := s.work.Err() != nil && !errors.Is(context.Cause(s.work), errOverdue), closeTimeout
	if !lost {
		within = max(within, min(s.relay.cfg.LeaseTTL/3, maxCloseTimeout, time.Until(s.drainDeadline)))
	}
	if err := closeSession(ctx, s.queue, within); err != nil && !lost && !errors.Is(err, driver.ErrLeaseLost) {
		s.relay.cfg.Logger.WarnContext(ctx, "relay: could not give back its shards; other relays take them when the lease has expired", "relay", s.relay.cfg.Name, "error", err)
	}
	s.endWork(nil)
}

// keepRenewing renews the hold until ctx ends or the lease is lost. Renew is never called after the hold expired.
func (s *session) keepRenewing(ctx context.Context) {
	r := s.relay
	for await.Sleep(ctx, s.renewIn()) == nil {
		for failures := 0; ; {
			left := time.Until(s.hold.Load().Until)
			if left <= 0 {
				s.leaseLost(LeaseLost, errHoldExpired)
				return
			}
			renewing, cancel := context.WithTimeout(s.work, min(r.cfg.LeaseTTL/3, left))
			hold, err := s.queue.Renew(renewing)
			cancel()
			if err == nil {
				r.outages.recovered(ctx, opRenew)
				s.renewed(hold)
				r.forgetFaults(ctx)
				break
			}
			if errors.Is(err, driver.ErrLeaseLost) {
				s.leaseLost(LeaseLost, err)
				return
			}
			failures++
			r.queueFailed(ctx, opRenew, fmt.Errorf("relay: renew the lease: %w", err))
			if await.Sleep(ctx, min(queueBackoff(failures), r.cfg.LeaseTTL/10,
				time.Until(s.hold.Load().Until))) != nil {
				return
			}
		}
	}
}

// shared returns the interval of work that the relays of an outbox share: interval while they are few, and longer the
// more there are, so that many relays ask the database no more often than few do. Relays that are not notified of all
// commits share nothing: each must poll to find messages in time.
func (s *session) shared(interval time.Duration) time.Duration {
	h := s.hold.Load()
	if !h.Announced || h.Relays <= fewRelays {
		return interval
	}
	return min(interval*time.Duration(h.Relays)/fewRelays, maxShared*interval)
}

// tidyIn varies where relays share the work: relays that began together would otherwise all look at the same time, and
// a delayed message would wait for that time.
func (s *session) tidyIn() time.Duration {
	interval := s.shared(maintainInterval)
	if interval > maintainInterval {
		interval = interval*3/4 + backoff.Draw(interval/2)
	}
	return interval
}

// renewIn is shorter while the session holds more or less than its fair share, because Renew takes and gives back
// shards.
func (s *session) renewIn() time.Duration {
	interval := min(s.relay.cfg.LeaseTTL/3, s.shared(maxRenewIn))
	if h := s.hold.Load(); h.Relays > 1 && (h.Shards < h.TotalShards/h.Relays ||
		h.Shards > (h.TotalShards+h.Relays-1)/h.Relays) {
		interval = min(interval, unevenRenewIn)
	}
	return interval
}

// renewed handles the result of Renew.
func (s *session) renewed(hold driver.Hold) {
	before := s.hold.Swap(&hold)
	if before == nil || before.Shards < hold.Shards {
		select {
		case s.newShards <- struct{}{}:
		default:
		}
	}
	if hold.SameName > 0 && !s.warnedSameName {
		s.warnedSameName = true
		s.relay.cfg.Logger.WarnContext(s.work, "relay: another relay is alive under the same name, or has died within the last Config.LeaseTTL; both work, but Stats and logs do not tell them apart",
			"relay", s.relay.cfg.Name, "others", hold.SameName)
	}
	kind := LeaseRenewed
	if before == nil {
		kind = LeaseTaken
	}
	s.relay.lease(s.work, LeaseEvent{Kind: kind, Hold: hold})
}

// leaseLost ends the session: calls of Publish are cut off, and nothing of the session is settled any more.
func (s *session) leaseLost(kind LeaseKind, err error) {
	s.loseOnce.Do(func() {
		if !errors.Is(err, driver.ErrLeaseLost) {
			err = fmt.Errorf("%w: %w", driver.ErrLeaseLost, err)
		}
		s.endWork(err)
		s.relay.cfg.Logger.WarnContext(s.work, "relay: lease lost; what was in flight may be published twice", "relay",
			s.relay.cfg.Name, "error", err)
		s.relay.lease(s.work, LeaseEvent{Kind: kind, Err: err})
	})
}

// keepTidying calls Maintain until ctx ends. It has a goroutine of its own because a slow Maintain must not delay
// Renew.
func (s *session) keepTidying(ctx context.Context, maintainer driver.Maintainer) {
	for await.Sleep(ctx, s.tidyIn()) == nil {
		maintaining, cancel := context.WithTimeout(ctx, s.relay.cfg.LeaseTTL)
		err := maintainer.Maintain(maintaining)
		cancel()
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			s.relay.queueFailed(ctx, opMaintain, fmt.Errorf("relay: maintain: %w", err))
		default:
			s.relay.outages.recovered(ctx, opMaintain)
		}
	}
}

// closeSession gives back the shards of a session, also after ctx has ended. When it fails, other relays wait for the
// hold to expire.
func closeSession(ctx context.Context, queue driver.Session, within time.Duration) error {
	closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), within)
	defer cancel()
	return queue.Close(closing)
}
