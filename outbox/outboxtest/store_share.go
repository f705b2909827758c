package outboxtest

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/txonce/txonce/outbox"
	"github.com/txonce/txonce/outbox/driver"
)

// shareCases are about sessions that share an outbox.
func shareCases[TTx any]() []storeCase[TTx] {
	const (
		leader = "29: there is no leader; all that are alive share the work"
		shard  = "24: a shard belongs to one relay at a time"
	)
	return []storeCase[TTx]{
		{name: "sessions share the shards, and never hold one together", hazard: leader, run: fairShare[TTx]},
		{
			name: "a session above its share gives back what has nothing leased, and only that", hazard: leader,
			run: givesBack[TTx],
		},
		{name: "a session that joins a busy one has its share after three Renews", hazard: leader, run: joinsBusy[TTx]},
		{name: "nobody gives up a shard for a session that has asked once", hazard: leader, run: askedOnce[TTx]},
		{name: "what stays free is taken", hazard: leader, run: staysFree[TTx]},
		{name: "Close gives back at once", hazard: leader, run: closeGivesBack[TTx]},
		{name: "the shards of a living session are left alone", hazard: shard, run: livingLeftAlone[TTx]},
		{name: "sessions that work at once lease each message once", hazard: shard, run: workAtOnce[TTx]},
		{name: "Hold says until when, how much, and who else", hazard: leader, run: holdSays[TTx]},
	}
}

// balanced renews all sessions until each holds no more than its share, and all shards are held.
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
			if sum > s.hold.TotalShards {
				e.Fatalf("%d sessions hold %d of %d shards together", len(all), sum, s.hold.TotalShards)
			}
		}
		for _, s := range all {
			most = max(most, s.hold.Shards)
		}
		fair := (all[0].hold.TotalShards + len(all) - 1) / len(all)
		if sum == all[0].hold.TotalShards && most <= fair {
			return
		}
		if e.ctx.Err() != nil {
			e.Fatalf("%d sessions: the largest holds %d of %d shards after %v, %d are held together", len(all), most,
				all[0].hold.TotalShards, limit, sum)
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
	all := onePerShard("first ", a.hold.TotalShards)
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
		if a.hold.Shards+b.hold.Shards == a.hold.TotalShards {
			return
		}
		if e.ctx.Err() != nil {
			e.Fatalf("after one of three has left, the others hold %d and %d of %d shards", a.hold.Shards,
				b.hold.Shards, a.hold.TotalShards)
		}
		pause(e.ctx)
	}
}

func givesBack[TTx any](e *env[TTx]) {
	a := e.session()
	of := a.hold.TotalShards
	all := onePerShard("", of)
	e.enqueue(all...)
	leased := a.await(idsOf(all)...)
	b := e.session()
	for range 3 {
		a.renew()
		b.renew()
		if a.hold.Shards != of || b.hold.Shards != 0 {
			e.Fatalf("every shard has leased messages of the first session; of %d the first holds %d, the second %d",
				of, a.hold.Shards, b.hold.Shards)
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

// joinsBusy has a session that leases again as soon as it has settled, so that each of its shards always has a leased
// message.
func joinsBusy[TTx any](e *env[TTx]) {
	a := e.session()
	of := a.hold.TotalShards
	all := onePerShard("", of)
	e.enqueue(all...)
	leased := a.await(idsOf(all)...)
	b := e.open("suite", 2*limit)
	for range 3 {
		pause(e.ctx) // the database's clock goes on
		b.renew()
		a.renew()
		a.returned(leased...)
		leased = a.lease(driver.Want{Limit: many})
	}
	if b.hold.Shards != of/2 || len(leased) < of/2 {
		e.Fatalf("a session that has joined a busy one holds %d of %d shards after three Renews of each; the busy one has leased of %d", b.hold.Shards, of, len(leased))
	}
	a.returned(leased...)
	shards := map[int]*holder{}
	for got := 0; got < of; {
		for _, s := range []*holder{a, b} {
			for _, l := range s.turn() {
				if shards[l.Shard] != nil {
					e.Fatalf("%q was leased twice", l.ID)
				}
				shards[l.Shard] = s
				got++
			}
		}
		if e.ctx.Err() != nil {
			e.Fatalf("two sessions that share the shards have leased %d of %d messages", got, of)
		}
	}
}

// askedOnce has programs that die right after their start.
func askedOnce[TTx any](e *env[TTx]) {
	a := e.session()
	var last *holder
	for range 6 {
		last = e.session()
		for range 2 {
			pause(e.ctx)
			if a.renew(); a.hold.Shards != a.hold.TotalShards {
				e.Fatalf("a session holds %d of %d shards beside %d that have renewed once each", a.hold.Shards,
					a.hold.TotalShards, a.hold.Relays-1)
			}
		}
	}
	for last.hold.Shards == 0 {
		pause(e.ctx)
		last.renew()
		if a.renew(); e.ctx.Err() != nil {
			e.Fatalf("a session that renews again and again gets nothing")
		}
	}
}

// staysFree has a program that dies before it takes the shards that were given up for it.
func staysFree[TTx any](e *env[TTx]) {
	a := e.session()
	of := a.hold.TotalShards
	dead := e.session()
	for a.hold.Shards == of {
		pause(e.ctx)
		if dead.renew(); dead.hold.Shards > 0 {
			e.Fatalf("took %d shards of a session that holds %d of %d", dead.hold.Shards, a.hold.Shards, of)
		}
		if a.renew(); e.ctx.Err() != nil {
			e.Fatalf("a session that renews again and again gets nothing")
		}
	}
	for range 2 { // the first finds them free
		pause(e.ctx)
		a.renew()
	}
	for range 4 {
		if a.hold.Shards != of {
			e.Fatalf("the only session that renews holds %d of %d shards: want all, once they have stayed free over a Renew", a.hold.Shards, of)
		}
		pause(e.ctx)
		a.renew()
	}
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
	for b.hold.Shards < b.hold.TotalShards {
		b.renew()
		if e.ctx.Err() != nil {
			e.Fatalf("the last session holds %d of %d shards", b.hold.Shards, b.hold.TotalShards)
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
	e.enqueue(onePerShard("", a.hold.TotalShards)...)
	b := e.session()
	for range 5 {
		b.quiet("all shards belong to another session, which is alive")
		if b.hold.Shards != 0 {
			e.Fatalf("took %d shards of a session that is alive", b.hold.Shards)
		}
	}
	a.leaseSome(driver.Want{Limit: many}) // it holds all shards
}

// workAtOnce runs several relays' calls at once, without a broker.
func workAtOnce[TTx any](e *env[TTx]) {
	const sessions, n = 4, 400
	var mu sync.Mutex
	times := map[string]int{}
	var failed error
	done := func() bool { return len(times) >= n || failed != nil }
	var work sync.WaitGroup
	for range sessions {
		s := e.open("suite", 2*limit)
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
func (s *holder) relayOnce() (leased []driver.Leased, err error) {
	if err := s.again(func() error { _, err := s.Renew(s.ctx); return err }); err != nil {
		return nil, fmt.Errorf("Renew: %w", err)
	}
	if leased, err = s.tryLease(driver.Want{Limit: 7, Groups: 2}); err != nil {
		return nil, fmt.Errorf("Lease: %w", err)
	}
	pause(s.ctx) // as long as publishing takes
	if err := s.trySettle(outcomes(driver.Sent, leased...)...); err != nil {
		return nil, fmt.Errorf("Settle: %w", err)
	}
	return leased, nil
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
		if s.hold.TotalShards <= 0 {
			e.Fatalf("the outbox has %d shards", s.hold.TotalShards)
		}
	}
	e.balanced(a, b, c)
	for name, s := range map[string]*holder{"one": a, "two": b, "one again": c} {
		want := 1
		if s == b {
			want = 0
		}
		if s.hold.Relays != 3 || s.hold.SameName != want {
			e.Errorf("%s: %d relays and %d sameName, want 3 and %d", name, s.hold.Relays, s.hold.SameName, want)
		}
	}
	if err := c.Close(e.ctx); err != nil {
		e.Fatalf("Close: %v", err)
	}
	if a.renew(); a.hold.Relays != 2 || a.hold.SameName != 0 {
		e.Errorf("after one of three has left: %d relays and %d sameName, want 2 and 0", a.hold.Relays, a.hold.SameName)
	}
}
