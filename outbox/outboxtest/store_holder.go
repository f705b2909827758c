package outboxtest

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/txonce/txonce/outbox"
	"github.com/txonce/txonce/outbox/driver"
)

// holder is a session whose methods the case calls itself.
type holder struct {
	judge
	driver.Session
	ctx  context.Context
	hold driver.Hold // after the last renew

	retryable func(error) bool
}

// session opens a session that outlasts the case, and takes its share.
func (e *env[TTx]) session() *holder {
	e.Helper()
	s := e.open("suite", 2*limit)
	s.renew()
	return s
}

// open opens a session that holds nothing yet.
func (e *env[TTx]) open(name string, ttl time.Duration) *holder {
	e.Helper()
	s, err := e.Queue.Open(e.ctx, driver.SessionOptions{Name: name, TTL: ttl})
	if err != nil {
		e.Fatalf("Open: %v", err)
	}
	e.Cleanup(func() { _ = s.Close(context.WithoutCancel(e.ctx)) })
	return &holder{judge: e.judge, Session: s, ctx: e.ctx, retryable: e.Retryable}
}

// again repeats do while its error is Retryable.
func (s *holder) again(do func() error) error {
	for {
		err := do()
		if err == nil || s.retryable == nil || !s.retryable(err) || s.ctx.Err() != nil {
			return err
		}
		pause(s.ctx)
	}
}

func (s *holder) renew() driver.Hold {
	s.Helper()
	if err := s.tryRenew(); err != nil {
		s.Fatalf("Renew: %v", err)
	}
	return s.hold
}

// tryRenew is one call of Renew.
func (s *holder) tryRenew() error {
	return s.again(func() (err error) {
		s.hold, err = s.Renew(s.ctx)
		return err
	})
}

func (s *holder) maintain() {
	s.Helper()
	if t, ok := s.Session.(driver.Maintainer); ok {
		if err := s.again(func() error { return t.Maintain(s.ctx) }); err != nil {
			s.Fatalf("Maintain: %v", err)
		}
	}
}

// leaseSome calls Lease until it finds something.
func (s *holder) leaseSome(want driver.Want) []driver.Leased {
	s.Helper()
	for s.ctx.Err() == nil {
		if leased := s.lease(want); len(leased) > 0 {
			return leased
		}
		pause(s.ctx)
	}
	s.Fatalf("nothing is leased within %v", limit)
	return nil
}

// tryLease is one call of Lease.
func (s *holder) tryLease(want driver.Want) (leased []driver.Leased, err error) {
	err = s.again(func() (err error) {
		leased, err = s.Session.Lease(s.ctx, want)
		return err
	})
	return leased, err
}

func (s *holder) lease(want driver.Want) []driver.Leased {
	s.Helper()
	leased, err := s.tryLease(want)
	if err != nil {
		s.Fatalf("Lease: %v", err)
	}
	s.sound(leased, want)
	return leased
}

// sound checks the rules that all leased messages must meet, in every case.
func (s *holder) sound(leased []driver.Leased, want driver.Want) {
	s.Helper()
	if len(leased) > want.Limit {
		s.Fatalf("leased %d messages, more than Limit %d", len(leased), want.Limit)
	}
	last := map[string]driver.Leased{}
	for _, l := range leased {
		if l.Shard < 0 || l.Shard >= s.hold.TotalShards {
			s.Fatalf("leased %q of shard %d, of %d shards", l.ID, l.Shard, s.hold.TotalShards)
		}
		if before, ok := last[l.OrderingKey]; ok && l.OrderingKey != "" && before.Seq >= l.Seq {
			s.Fatalf("leased %q (seq %d) before %q (seq %d) of the same key", before.ID, before.Seq, l.ID, l.Seq)
		}
		last[l.OrderingKey] = l
	}
}

// turn does one round of a relay's calls: Renew, Maintain, Lease.
func (s *holder) turn() []driver.Leased {
	s.Helper()
	s.renew()
	s.maintain()
	return s.lease(driver.Want{Limit: many})
}

// await takes turns until exactly these are leased. It returns them in that order.
func (s *holder) await(ids ...string) []driver.Leased {
	s.Helper()
	found := make([]driver.Leased, len(ids))
	for missing := len(ids); missing > 0; {
		leased := s.turn()
		for _, l := range leased {
			i := slices.Index(ids, l.ID)
			if i < 0 {
				s.Fatalf("leased %q, want only %s", l.ID, few(ids))
			}
			if found[i].Seq != 0 {
				s.Fatalf("leased %q twice", l.ID)
			}
			found[i] = l
			missing--
		}
		if len(leased) == 0 && missing > 0 {
			if s.ctx.Err() != nil {
				s.Fatalf("not all of %s were leased within %v: %d are missing", few(ids), limit, missing)
			}
			pause(s.ctx)
		}
	}
	return found
}

// quiet fails if Lease returns a message now.
func (s *holder) quiet(why string) {
	s.Helper()
	for range 3 {
		if leased := s.turn(); len(leased) > 0 {
			s.Fatalf("leased %s: %s", few(ids(leased)), why)
		}
	}
}

// drain confirms n messages and returns them in the order of their leases. Nothing must be left then.
func (s *holder) drain(n int) (all []driver.Leased) {
	s.Helper()
	for len(all) < n {
		leased := s.turn()
		if len(leased) == 0 {
			if s.ctx.Err() != nil {
				s.Fatalf("leased only %d of %d messages within %v", len(all), n, limit)
			}
			pause(s.ctx)
			continue
		}
		s.sent(leased...)
		all = append(all, leased...)
	}
	if len(all) > n {
		s.Fatalf("leased %d messages, want %d: %s", len(all), n, few(ids(all)))
	}
	s.quiet("everything was confirmed")
	return all
}

// trySettle is one call of Settle.
func (s *holder) trySettle(outcomes ...driver.Outcome) error {
	return s.again(func() error { return s.Settle(s.ctx, outcomes) })
}

func (s *holder) settle(outcomes ...driver.Outcome) {
	s.Helper()
	if err := s.trySettle(outcomes...); err != nil {
		s.Fatalf("Settle: %v", err)
	}
}

func (s *holder) sent(leased ...driver.Leased) {
	s.Helper()
	s.settle(outcomes(driver.Sent, leased...)...)
}

func (s *holder) returned(leased ...driver.Leased) {
	s.Helper()
	s.settle(outcomes(driver.Returned, leased...)...)
}

func outcomes(v driver.Verdict, leased ...driver.Leased) []driver.Outcome {
	list := make([]driver.Outcome, len(leased))
	for i, l := range leased {
		list[i] = driver.Outcome{Leased: l, Verdict: v}
		if v == driver.Deferred || v == driver.Parked {
			list[i].Err = errRefused
		}
	}
	return list
}

var errRefused = errors.New("refused by the broker of the suite")

func deferred(l driver.Leased, delay time.Duration) driver.Outcome {
	return driver.Outcome{Leased: l, Verdict: driver.Deferred, Err: errRefused, Delay: delay}
}

func parked(l driver.Leased, keep outbox.ParkPolicy) driver.Outcome {
	return driver.Outcome{Leased: l, Verdict: driver.Parked, Err: errRefused, ParkPolicy: keep}
}
