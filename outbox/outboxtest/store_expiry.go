package outboxtest

import (
	"errors"
	"fmt"
	"time"

	"github.com/txonce/txonce/outbox/driver"
)

// expiryCases are about holds that run out, by the database's own clock.
func expiryCases[TTx any]() []storeCase[TTx] {
	const hazard = "26: a hold ends by the database's clock, and is not revived"
	return []storeCase[TTx]{
		{name: "a session that renews keeps what it holds", hazard: hazard, run: renewKeeps[TTx]},
		{name: "when a hold has run out its messages are handed over", hazard: hazard, run: handedOver[TTx]},
		{name: "Renew after the end of the hold is ErrLeaseLost", hazard: hazard, run: renewTooLate[TTx]},
		{name: "a Renew that races a takeover: one of them wins", hazard: hazard, run: renewRace[TTx]},
	}
}

// renewKeeps renews for longer than the TTL. When the machine pauses the test for so long, the run proves nothing and
// is repeated.
func renewKeeps[TTx any](e *env[TTx]) {
	e.enqueue(series("k", 3)...)
	for ttl := e.ttl; ; ttl = longer(ttl) {
		a := e.open("keeps", ttl)
		b := e.open("waits", 2*limit)
		last := time.Now()
		if !a.begin(ttl) {
			_ = b.tryClose()
			continue
		}
		leased, err := a.tryLease(driver.Want{Limit: many})
		if err != nil && !errors.Is(err, driver.ErrLeaseLost) {
			e.Fatalf("Lease: %v", err)
		}
		for end := time.Now().Add(3 * ttl); time.Now().Before(end); until(e, time.Now().Add(ttl/30)) {
			began := time.Now()
			_, err := a.Renew(e.ctx)
			if errors.Is(err, driver.ErrLeaseLost) {
				if time.Since(last) < ttl {
					e.Fatalf("Renew %v after the last one, with a TTL of %v: %v", time.Since(last), ttl, err)
				}
				break
			}
			if err == nil {
				last = began
			}
			for _, l := range b.turn() {
				if time.Since(last) < ttl {
					e.Fatalf("%q was leased from a session that renews", l.ID)
				}
			}
		}
		err = a.trySettle(outcomes(driver.Returned, leased...)...)
		kept := time.Since(last) < ttl
		_, _ = a.tryClose(), b.tryClose()
		if err == nil && len(leased) == 3 {
			return
		}
		if kept && err != nil {
			e.Fatalf("a session that renews has lost what it leased (%v): %v", ids(leased), err)
		}
		if e.ctx.Err() != nil {
			e.Fatalf("could not renew in time within %v", limit)
		}
	}
}

// lapsed leases n messages with a session that is not renewed, and returns when its hold has run out.
func (e *env[TTx]) lapsed(n int) (s *holder, leased []driver.Leased) {
	e.Helper()
	if e.Age == nil {
		return e.waitedOut(n)
	}
	s = e.open("lapsed", 2*limit)
	s.renew()
	for len(leased) < n {
		leased = append(leased, s.leaseSome(driver.Want{Limit: many})...)
	}
	if len(leased) > n {
		e.Fatalf("leased %d messages, want %d: %s", len(leased), n, few(ids(leased)))
	}
	e.age("lapsed", 2*limit+time.Second)
	return s, leased
}

// age may be called from any goroutine.
func (e *env[TTx]) age(name string, by time.Duration) {
	e.Helper()
	err := e.again(func() error { return e.Age(e.ctx, name, by) })
	if err != nil && e.ctx.Err() == nil {
		e.Errorf("Age: %v", err)
	}
}

// waitedOut is lapsed without Age: it waits for the end of the hold.
func (e *env[TTx]) waitedOut(n int) (s *holder, leased []driver.Leased) {
	e.Helper()
	for ttl := e.ttl; e.ctx.Err() == nil; ttl = longer(ttl) {
		s, leased = e.open("lapsed", ttl), nil
		if !s.begin(ttl) {
			continue
		}
		end := time.Now().Add(ttl + ttl/10)
		for time.Now().Before(end) && len(leased) < n {
			more, err := s.tryLease(driver.Want{Limit: many})
			if err != nil && !errors.Is(err, driver.ErrLeaseLost) {
				e.Fatalf("Lease: %v", err)
			}
			leased = append(leased, more...)
		}
		until(e, end)
		if len(leased) == n {
			return s, leased
		}
		_ = s.tryClose() // too slow
	}
	e.Fatalf("could not lease %d messages within a TTL of %v", n, e.ttl)
	return nil, nil
}

// begin is the first Renew of a session with a short TTL. It returns false when Renew took as long as the TTL, because
// the hold may have expired already; then the session is closed.
func (s *holder) begin(ttl time.Duration) bool {
	s.Helper()
	began := time.Now()
	err := s.tryRenew()
	if err != nil && (!errors.Is(err, driver.ErrLeaseLost) || time.Since(began) < ttl) {
		s.Fatalf("Renew: %v", err)
	}
	if err != nil {
		_ = s.tryClose()
	}
	return err == nil
}

// longer returns the TTL of the next attempt, after the machine was too slow for this one.
func longer(ttl time.Duration) time.Duration { return min(2*ttl, limit/8) }

func until[TTx any](e *env[TTx], at time.Time) {
	for time.Now().Before(at) && e.ctx.Err() == nil {
		pause(e.ctx)
	}
}

func handedOver[TTx any](e *env[TTx]) {
	a := e.open("early", 2*limit)
	a.renew()
	msgs := onePerShard("", a.hold.TotalShards)
	a.close()
	e.enqueue(msgs...)
	_, before := e.waitedOut(len(msgs))
	tokens := map[int]int64{}
	for _, l := range before {
		tokens[l.Shard] = l.Token
	}
	b := e.session()
	for _, l := range b.await(idsOf(msgs)...) {
		if l.Token <= tokens[l.Shard] {
			e.Errorf("shard %d has token %d after a takeover, and had %d before", l.Shard, l.Token, tokens[l.Shard])
		}
	}
	if b.hold.Shards != b.hold.TotalShards {
		e.Errorf("the only living session holds %d of %d shards", b.hold.Shards, b.hold.TotalShards)
	}
}

func renewTooLate[TTx any](e *env[TTx]) {
	e.enqueue(message("1", "k"))
	a, _ := e.lapsed(1)
	for range 2 {
		if err := a.tryRenew(); !errors.Is(err, driver.ErrLeaseLost) {
			e.Fatalf("nobody took anything; Renew after the end of the hold: %+v, error %v, want ErrLeaseLost",
				a.hold, err)
		}
	}
	if err := a.tryClose(); err != nil && !errors.Is(err, driver.ErrLeaseLost) {
		e.Fatalf("Close: %v", err)
	}
	a, _ = e.lapsed(1)
	b := e.session()
	if err := a.tryRenew(); !errors.Is(err, driver.ErrLeaseLost) {
		e.Fatalf("another session took over; Renew: %+v, error %v, want ErrLeaseLost", a.hold, err)
	}
	b.drain(1)
}

// renewRace lets a session renew at the very end of its hold, while another one waits for it.
func renewRace[TTx any](e *env[TTx]) {
	ttl := e.ttl / 2
	for round := range 12 {
		a := e.open("renews", ttl)
		start := time.Now()
		for !a.begin(ttl) {
			ttl = longer(ttl)
			a, start = e.open("renews", ttl), time.Now()
		}
		all := onePerShard(fmt.Sprint(round, " "), a.hold.TotalShards)
		e.enqueue(all...)
		b := e.open("takes", 2*limit)
		if gone := start.Add(ttl * time.Duration(85+3*round) / 100); e.Age == nil {
			until(e, gone)
		} else if d := time.Until(gone); d > 0 {
			e.age("renews", d)
		}
		var err error
		again, renewed := time.Now(), make(chan struct{})
		go func() {
			defer close(renewed)
			err = a.tryRenew()
		}()
		b.renew()
		<-renewed
		switch {
		case err != nil && !errors.Is(err, driver.ErrLeaseLost):
			e.Fatalf("Renew: %v", err)
		case err == nil && a.hold.Shards+b.hold.Shards > a.hold.TotalShards && time.Since(again) < ttl:
			e.Fatalf("both sessions were renewed, and hold %d and %d of %d shards", a.hold.Shards, b.hold.Shards,
				a.hold.TotalShards)
		}
		shards := map[int]bool{}
		if err == nil {
			leased, _ := a.tryLease(driver.Want{Limit: many})
			for _, l := range leased {
				shards[l.Shard] = true
			}
			if a.trySettle(outcomes(driver.Returned, leased...)...) != nil {
				clear(shards) // it was taken over since
			}
		}
		for _, l := range b.lease(driver.Want{Limit: many}) {
			if shards[l.Shard] {
				if err := a.tryRenew(); err == nil {
					e.Fatalf("shard %d is leased by two sessions that are alive", l.Shard)
				}
			}
		}
		_, _ = a.tryClose(), b.tryClose()
		e.drainRest()
	}
}
