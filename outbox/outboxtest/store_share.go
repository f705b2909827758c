package outboxtest

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/txonce/txonce/outbox"
)

// shareCases are about sessions that share an outbox.
func shareCases[TTx any]() []storeCase[TTx] {
	const (
		leader = "29: there is no leader; all that are alive share the work"
		shard  = "24: a shard belongs to one relay at a time"
		lease  = "26: a hold ends by the database's clock, and is not revived"
	)
	return []storeCase[TTx]{
		{name: "sessions share the shards, and never hold one together", hazard: leader, run: fairShare[TTx]},
		{name: "a session above its share gives back what has nothing leased, and only that", hazard: leader, run: givesBack[TTx]},
		{name: "Close gives back at once", hazard: leader, run: closeGivesBack[TTx]},
		{name: "the shards of a living session are left alone", hazard: shard, run: livingLeftAlone[TTx]},
		{name: "sessions that work at once lease each message once", hazard: shard, run: workAtOnce[TTx]},
		{name: "a session that renews keeps what it holds", hazard: lease, run: renewKeeps[TTx]},
		{name: "when a hold has run out its messages are handed over", hazard: lease, run: handedOver[TTx]},
		{name: "Renew after the end of the hold is ErrLeaseLost", hazard: lease, run: renewTooLate[TTx]},
		{name: "a Renew that races a takeover: one of them wins", hazard: lease, run: renewRace[TTx]},
		{name: "Hold says until when, how much, and who else", hazard: leader, run: holdSays[TTx]},
	}
}

// balanced renews all until each holds no more than its share, and all shards are held.
func (e *env[TTx]) balanced(all ...*holder) {
	e.Helper()
	for {
		sum, most := 0, 0
		for _, s := range all {
			s.renew()
			sum = 0
			for _, other := range all { // what one was told stays true until its own next Renew
				sum += other.hold.Shards
			}
			if sum > s.hold.Of {
				e.Fatalf("%d sessions hold %d of %d shards together", len(all), sum, s.hold.Of)
			}
		}
		for _, s := range all {
			most = max(most, s.hold.Shards)
		}
		fair := (all[0].hold.Of + len(all) - 1) / len(all)
		if sum == all[0].hold.Of && most <= fair {
			return
		}
		if e.ctx.Err() != nil {
			e.Fatalf("%d sessions: the largest holds %d of %d shards after %v, %d are held together", len(all), most, all[0].hold.Of, limit, sum)
		}
		pause(e.ctx)
	}
}

// onePerShard returns a message for each shard.
func onePerShard(prefix string, of int) (msgs []outbox.Message) {
	for _, key := range keysInShards(of, of) {
		msgs = append(msgs, message(prefix+key, key))
	}
	return msgs
}

func fairShare[TTx any](e *env[TTx]) {
	a, b := e.session(), e.session()
	e.balanced(a, b)
	c := e.session()
	e.balanced(a, b, c)
	all := onePerShard("first ", a.hold.Of)
	e.enqueue(all...)
	owner, leased := map[int]*holder{}, 0
	for leased < len(all) {
		for _, s := range []*holder{a, b, c} {
			for _, l := range s.turn() {
				if other := owner[l.Shard]; other != nil {
					e.Fatalf("two sessions have leased of shard %d, or one twice", l.Shard)
				}
				owner[l.Shard] = s
				leased++
			}
		}
		if e.ctx.Err() != nil {
			e.Fatalf("leased %d of %d messages", leased, len(all))
		}
	}
	for range 3 {
		for _, s := range []*holder{a, b, c} {
			s.quiet("everything is leased, by three sessions that are alive")
		}
	}
	if err := c.Close(e.ctx); err != nil {
		e.Fatalf("Close: %v", err)
	}
	for {
		a.renew()
		b.renew()
		if a.hold.Shards+b.hold.Shards == a.hold.Of {
			return
		}
		if e.ctx.Err() != nil {
			e.Fatalf("after one of three has left, the others hold %d and %d of %d shards", a.hold.Shards, b.hold.Shards, a.hold.Of)
		}
		pause(e.ctx)
	}
}

func givesBack[TTx any](e *env[TTx]) {
	a := e.session()
	of := a.hold.Of
	all := onePerShard("", of)
	e.enqueue(all...)
	leased := a.await(idsOf(all)...)
	b := e.session()
	for range 3 {
		a.renew()
		b.renew()
		if a.hold.Shards != of || b.hold.Shards != 0 {
			e.Fatalf("every shard has leased messages of the first session; of %d the first holds %d, the second %d", of, a.hold.Shards, b.hold.Shards)
		}
	}
	half := len(leased) / 2
	a.sent(leased[:half]...)
	for b.hold.Shards == 0 {
		a.renew()
		b.renew()
		if e.ctx.Err() != nil {
			e.Fatalf("a session above its share gives back nothing; it holds %d of %d shards", a.hold.Shards, of)
		}
		pause(e.ctx)
	}
	a.sent(leased[half:]...) // fails where a shard was given away with its leased messages
	e.balanced(a, b)
	a.quiet("everything was confirmed")
	b.quiet("everything was confirmed")
}

func closeGivesBack[TTx any](e *env[TTx]) {
	a := e.open("suite", time.Hour) // others cannot be waiting for its end
	a.renew()
	e.enqueue(series("k", 3)...)
	a.await("k-1", "k-2", "k-3")
	b := e.session()
	if err := a.Close(e.ctx); err != nil {
		e.Fatalf("Close: %v", err)
	}
	b.await("k-1", "k-2", "k-3")
	for b.hold.Shards < b.hold.Of {
		b.renew()
		if e.ctx.Err() != nil {
			e.Fatalf("the last session holds %d of %d shards", b.hold.Shards, b.hold.Of)
		}
		pause(e.ctx)
	}
	if b.hold.Relays != 1 {
		e.Errorf("%d relays are alive after Close of all but one", b.hold.Relays)
	}
}

// livingLeftAlone has a session that does not give back, because it is between two of its Renews.
func livingLeftAlone[TTx any](e *env[TTx]) {
	a := e.session()
	e.enqueue(onePerShard("", a.hold.Of)...)
	b := e.session()
	for range 5 {
		b.quiet("all shards belong to another session, which is alive")
		if b.hold.Shards != 0 {
			e.Fatalf("took %d shards of a session that is alive", b.hold.Shards)
		}
	}
	if got := a.lease(outbox.Want{Limit: many}); len(got) == 0 {
		e.Fatalf("nothing is leased to the session that holds all shards")
	}
}

// workAtOnce is what relays do, without a broker.
func workAtOnce[TTx any](e *env[TTx]) {
	const sessions, n = 4, 400
	var mu sync.Mutex
	times := map[string]int{}
	var failed error
	done := func() bool { return len(times) >= n || failed != nil }
	var work sync.WaitGroup
	for range sessions {
		s := e.open("suite", time.Minute)
		work.Go(func() {
			for e.ctx.Err() == nil {
				leased, err := s.relayOnce()
				mu.Lock()
				for _, l := range leased {
					times[l.ID]++
				}
				failed = errors.Join(failed, err)
				end := done()
				mu.Unlock()
				if end {
					return
				}
				pause(e.ctx)
			}
		})
	}
	for i := range n / 20 {
		var msgs []outbox.Message
		for j := range 20 {
			msgs = append(msgs, message(fmt.Sprintf("%d-%d", i, j), fmt.Sprint("key", i*j%40)))
		}
		e.enqueue(msgs...)
	}
	work.Wait()
	if failed != nil {
		e.Fatalf("a session that is alive: %v", failed)
	}
	if len(times) != n {
		e.Fatalf("leased %d of %d messages within %v", len(times), n, limit)
	}
	for id, n := range times {
		if n != 1 {
			e.Errorf("%q was confirmed by %d leases", id, n)
		}
	}
}

// relayOnce may run in any goroutine.
func (s *holder) relayOnce() (leased []outbox.Leased, err error) {
	if err := s.again(func() error { _, err := s.Renew(s.ctx); return err }); err != nil {
		return nil, fmt.Errorf("Renew: %w", err)
	}
	if leased, err = s.tryLease(outbox.Want{Limit: 7, Part: 2}); err != nil {
		return nil, fmt.Errorf("Lease: %w", err)
	}
	pause(s.ctx) // as long as publishing takes
	if err := s.trySettle(outcomes(outbox.Sent, leased...)...); err != nil {
		return nil, fmt.Errorf("Settle: %w", err)
	}
	return leased, nil
}

// renewKeeps renews for longer than the TTL. A machine that stands still for so long proves nothing, and is tried again.
func renewKeeps[TTx any](e *env[TTx]) {
	e.enqueue(series("k", 3)...)
	for {
		a := e.open("keeps", e.ttl)
		b := e.open("waits", time.Minute)
		last := time.Now()
		a.renew()
		leased := a.lease(outbox.Want{Limit: many})
		for end := time.Now().Add(3 * e.ttl); time.Now().Before(end); pause(e.ctx) {
			began := time.Now()
			_, err := a.Renew(e.ctx)
			if errors.Is(err, outbox.ErrLeaseLost) {
				if time.Since(last) < e.ttl {
					e.Fatalf("Renew %v after the last one, with a TTL of %v: %v", time.Since(last), e.ttl, err)
				}
				break
			}
			if err == nil {
				last = began
			}
			for _, l := range b.turn() {
				if time.Since(last) < e.ttl {
					e.Fatalf("%q was leased from a session that renews", l.ID)
				}
			}
		}
		err := a.trySettle(outcomes(outbox.Returned, leased...)...)
		kept := time.Since(last) < e.ttl
		_, _ = a.Close(e.ctx), b.Close(e.ctx)
		if err == nil && len(leased) == 3 {
			return
		}
		if kept {
			e.Fatalf("a session that renews has lost what it leased (%v): %v", ids(leased), err)
		}
		if e.ctx.Err() != nil {
			e.Fatalf("could not renew in time within %v", limit)
		}
	}
}

// lapsed leases n messages with a session that is not renewed, and returns when its hold has run out.
func (e *env[TTx]) lapsed(n int) (s *holder, leased []outbox.Leased) {
	e.Helper()
	for e.ctx.Err() == nil {
		s, leased = e.open("lapsed", e.ttl), nil
		s.renew()
		end := time.Now().Add(e.ttl + e.ttl/10)
		for time.Now().Before(end) && len(leased) < n {
			more, err := s.tryLease(outbox.Want{Limit: many})
			if err != nil && !errors.Is(err, outbox.ErrLeaseLost) {
				e.Fatalf("Lease: %v", err)
			}
			leased = append(leased, more...)
		}
		until(e, end)
		if len(leased) == n {
			return s, leased
		}
		_ = s.Close(e.ctx) // too slow
	}
	e.Fatalf("could not lease %d messages within a TTL of %v", n, e.ttl)
	return nil, nil
}

func until[TTx any](e *env[TTx], at time.Time) {
	for time.Now().Before(at) && e.ctx.Err() == nil {
		pause(e.ctx)
	}
}

func handedOver[TTx any](e *env[TTx]) {
	a := e.open("early", e.ttl)
	a.renew()
	msgs := onePerShard("", a.hold.Of)
	if err := a.Close(e.ctx); err != nil {
		e.Fatalf("Close: %v", err)
	}
	e.enqueue(msgs...)
	_, before := e.lapsed(len(msgs))
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
	if b.hold.Shards != b.hold.Of {
		e.Errorf("the only living session holds %d of %d shards", b.hold.Shards, b.hold.Of)
	}
}

func renewTooLate[TTx any](e *env[TTx]) {
	e.enqueue(message("1", "k"))
	a, _ := e.lapsed(1)
	for range 2 {
		if hold, err := a.Renew(e.ctx); !errors.Is(err, outbox.ErrLeaseLost) {
			e.Fatalf("nobody took anything; Renew after the end of the hold: %+v, error %v, want ErrLeaseLost", hold, err)
		}
	}
	if err := a.Close(e.ctx); err != nil && !errors.Is(err, outbox.ErrLeaseLost) {
		e.Fatalf("Close: %v", err)
	}
	a, _ = e.lapsed(1)
	b := e.session()
	if hold, err := a.Renew(e.ctx); !errors.Is(err, outbox.ErrLeaseLost) {
		e.Fatalf("another session took over; Renew: %+v, error %v, want ErrLeaseLost", hold, err)
	}
	b.drain(1)
}

// renewRace lets a session renew at the very end of its hold, while another one waits for it.
func renewRace[TTx any](e *env[TTx]) {
	ttl := e.ttl / 2
	for round := range 12 {
		a := e.open("renews", ttl)
		start := time.Now()
		a.renew()
		all := onePerShard(fmt.Sprint(round, " "), a.hold.Of)
		e.enqueue(all...)
		b := e.open("takes", time.Minute)
		until(e, start.Add(ttl*time.Duration(85+3*round)/100))
		var mine outbox.Hold
		var err error
		again, renewed := time.Now(), make(chan struct{})
		go func() {
			defer close(renewed)
			mine, err = a.Renew(e.ctx)
		}()
		b.renew()
		<-renewed
		switch {
		case err != nil && !errors.Is(err, outbox.ErrLeaseLost):
			e.Fatalf("Renew: %v", err)
		case err == nil && mine.Shards+b.hold.Shards > mine.Of && time.Since(again) < ttl:
			e.Fatalf("both sessions were renewed, and hold %d and %d of %d shards", mine.Shards, b.hold.Shards, mine.Of)
		}
		shards := map[int]bool{}
		if err == nil {
			leased, _ := a.tryLease(outbox.Want{Limit: many})
			for _, l := range leased {
				shards[l.Shard] = true
			}
			if a.trySettle(outcomes(outbox.Returned, leased...)...) != nil {
				clear(shards) // it was taken over since
			}
		}
		for _, l := range b.lease(outbox.Want{Limit: many}) {
			if shards[l.Shard] {
				if _, err := a.Renew(e.ctx); err == nil {
					e.Fatalf("shard %d is leased by two sessions that are alive", l.Shard)
				}
			}
		}
		_, _ = a.Close(e.ctx), b.Close(e.ctx)
		e.drainRest()
	}
}

func holdSays[TTx any](e *env[TTx]) {
	const ttl = 10 * time.Minute
	a, b, c := e.open("one", ttl), e.open("two", ttl), e.open("one", ttl)
	for _, s := range []*holder{a, b, c} {
		before := time.Now()
		s.renew()
		if min, max := before.Add(ttl), time.Now().Add(ttl); s.hold.Until.Before(min) || s.hold.Until.After(max) {
			e.Errorf("Until is %v, and a Renew with a TTL of %v began %v ago", s.hold.Until, ttl, time.Since(before))
		}
		if s.hold.Of <= 0 {
			e.Fatalf("the outbox has %d shards", s.hold.Of)
		}
	}
	e.balanced(a, b, c)
	for name, s := range map[string]*holder{"one": a, "two": b, "one again": c} {
		want := 1
		if s == b {
			want = 0
		}
		if s.hold.Relays != 3 || s.hold.Namesakes != want {
			e.Errorf("%s: %d relays and %d namesakes, want 3 and %d", name, s.hold.Relays, s.hold.Namesakes, want)
		}
	}
	if err := c.Close(e.ctx); err != nil {
		e.Fatalf("Close: %v", err)
	}
	if a.renew(); a.hold.Relays != 2 || a.hold.Namesakes != 0 {
		e.Errorf("after one of three has left: %d relays and %d namesakes, want 2 and 0", a.hold.Relays, a.hold.Namesakes)
	}
}
