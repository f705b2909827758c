package outboxtest

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/txonce/txonce/outbox"
	"github.com/txonce/txonce/outbox/driver"
)

// leaseCases are about what Lease returns.
func leaseCases[TTx any]() []storeCase[TTx] {
	const (
		hazard = "24: a shard belongs to one lease at a time"
		bounds = "26: a lease is bounded, so that it can be published before its end"
		state  = "23: claim by state, not by cursor"
	)
	return []storeCase[TTx]{
		{name: "Limit bounds a lease", hazard: bounds, run: limitBounds[TTx]},
		{name: "Bytes bounds a lease, and a larger message is leased alone", hazard: bounds, run: bytesBound[TTx]},
		{
			name: "a shard with leased messages is left alone until they are settled", hazard: hazard,
			run: leftAlone[TTx],
		},
		{name: "Groups scans one group of shards per call", hazard: hazard, run: parts[TTx]},
		{name: "every pending message is leased in the end, with any Part", hazard: state, run: partsMissNothing[TTx]},
		{name: "what was returned is due again at once", hazard: state, run: returned[TTx]},
		{name: "nothing is leased before the first Renew", hazard: hazard, run: beforeRenew[TTx]},
		{name: "nothing is leased after an error", hazard: hazard, run: nothingAfterError[TTx]},
		{name: "what was confirmed is not leased again", hazard: state, run: confirmed[TTx]},
		{name: "settling twice is harmless", hazard: "28: an unknown outcome is settled again", run: settleTwice[TTx]},
	}
}

func limitBounds[TTx any](e *env[TTx]) {
	e.enqueue(series("k", 10)...)
	s := e.session()
	var got []string
	for len(got) < 10 {
		leased := s.leaseSome(driver.Want{Limit: 3}) // at most 3, says sound
		got = append(got, ids(leased)...)
		s.sent(leased...)
	}
	if want := idsOf(series("k", 10)); !slices.Equal(got, want) {
		e.Fatalf("leased %v, want %v", got, want)
	}
}

func bytesBound[TTx any](e *env[TTx]) {
	const bound = 4000
	var msgs []outbox.Message
	for i := range 12 {
		m := outbox.Message{
			ID: fmt.Sprint(i), Topic: topic, OrderingKey: "0123456789", Payload: make([]byte, 1000),
			Headers: map[string]string{"name": string(make([]byte, 86))},
		} // 1100 bytes: three of them
		switch i {
		case 5:
			m.Payload = make([]byte, 3*bound)
		case 8:
			m.Payload, m.Headers["name"] = nil, string(make([]byte, 2*bound))
		}
		msgs = append(msgs, m)
	}
	e.enqueue(msgs...)
	s := e.session()
	var got []string
	for len(got) < len(msgs) {
		leased := s.leaseSome(driver.Want{Limit: many, Bytes: bound}) // a message that is larger than Bytes, too
		total := 0
		for _, l := range leased {
			total += size(&row{Leased: l})
		}
		if total > bound && len(leased) > 1 {
			e.Fatalf("leased %v with %d bytes together, bound %d", ids(leased), total, bound)
		}
		got = append(got, ids(leased)...)
		s.sent(leased...)
	}
	if !slices.Equal(got, idsOf(msgs)) {
		e.Fatalf("leased %v, want %v", got, idsOf(msgs))
	}

	e.enqueue(series("k", 5)...)
	if leased := s.leaseSome(driver.Want{Limit: many}); len(leased) != 5 {
		e.Fatalf("leased %d of 5 messages without a bound of bytes", len(leased))
	}
}

func leftAlone[TTx any](e *env[TTx]) {
	s := e.session()
	keys := keysInShards(2, s.hold.TotalShards)
	e.enqueue(append(series(keys[0], 3), series(keys[1], 3)...)...)
	one := s.leaseSome(driver.Want{Limit: 1})
	if len(one) != 1 {
		e.Fatalf("leased %v with Limit 1", ids(one))
	}
	rest := s.turn()
	for _, l := range rest {
		if l.Shard == one[0].Shard {
			e.Fatalf("leased %q of shard %d, of which %q is leased already", l.ID, l.Shard, one[0].ID)
		}
	}
	if len(rest) != 3 {
		e.Fatalf("leased %v of the other shard, want 3", ids(rest))
	}
	s.quiet("both shards have leased messages")

	s.sent(rest[0], rest[2]) // not all of them
	s.quiet("both shards have leased messages still")
	s.sent(rest[1])
	s.sent(one[0])
	if got := s.drain(2); got[0].OrderingKey != one[0].OrderingKey || got[0].Seq > got[1].Seq {
		e.Fatalf("leased %v then", ids(got))
	}
}

func parts[TTx any](e *env[TTx]) {
	s := e.session()
	of := s.hold.TotalShards
	var msgs []outbox.Message
	for _, key := range keysInShards(of, of) {
		msgs = append(msgs, series(key, 2)...)
	}
	e.enqueue(msgs...)
	s.returned(s.await(idsOf(msgs)...)...) // so that each turn will find what there is
	const part = 4
	seen := map[int]bool{}
	for turn := range part {
		shards := map[int]bool{}
		for _, l := range s.lease(driver.Want{Limit: many, Groups: part}) {
			if seen[l.Shard] {
				e.Fatalf("turn %d looks at shard %d again, which has leased messages", turn, l.Shard)
			}
			shards[l.Shard] = true
		}
		for shard := range shards {
			seen[shard] = true
		}
		if len(shards) > (of+part-1)/part {
			e.Fatalf("turn %d of %d leased from %d shards of %d", turn, part, len(shards), of)
		}
	}
	if len(seen) != of {
		e.Fatalf("%d turns with Groups %d have scanned %d shards of %d", part, part, len(seen), of)
	}
}

// partsMissNothing enqueues between the turns, into any group of shards.
func partsMissNothing[TTx any](e *env[TTx]) {
	const n = 30 // in half of the shards or more
	for _, part := range []int{2, 3, 7, 100} {
		s := e.open("suite", limit)
		s.renew()
		got := map[string]bool{}
		for i := 0; len(got) < n; i++ {
			if i < n {
				e.enqueue(message(fmt.Sprintf("%d-%d", part, i), fmt.Sprint("key", i)))
			}
			for _, l := range s.lease(driver.Want{Limit: 5, Groups: part}) {
				if got[l.ID] {
					e.Fatalf("leased %q twice", l.ID)
				}
				got[l.ID] = true
				s.sent(l)
			}
			if i > n*part+1000 || e.ctx.Err() != nil {
				e.Fatalf("leased only %d of %d messages in %d turns with Groups %d", len(got), n, i, part)
			}
		}
		if err := s.Close(e.ctx); err != nil {
			e.Fatalf("Close: %v", err)
		}
	}
}

func returned[TTx any](e *env[TTx]) {
	e.enqueue(append(series("k", 3), message("free", ""))...)
	s := e.session()
	for range 3 {
		leased := s.await("k-1", "k-2", "k-3", "free")
		for _, l := range leased {
			if l.Attempts != 0 {
				e.Fatalf("%q has %d attempts, and was only returned", l.ID, l.Attempts)
			}
		}
		s.returned(leased...)
	}
	leased := s.await("k-1", "k-2", "k-3", "free")
	s.settle(append(outcomes(driver.Returned, leased[1:]...), outcomes(driver.Sent, leased[0])...)...)
	s.await("k-2", "k-3", "free")
}

func beforeRenew[TTx any](e *env[TTx]) {
	e.enqueue(series("k", 3)...)
	s := e.open("suite", limit)
	if leased, err := s.tryLease(driver.Want{Limit: many}); len(leased) > 0 {
		e.Fatalf("leased %v before the first Renew (error %v)", ids(leased), err)
	}
	s.drain(3)
}

// nothingAfterError ends the ctx of Lease at each place where the store looks at it, until one call comes through.
func nothingAfterError[TTx any](e *env[TTx]) {
	e.enqueue(append(series("k", 3), message("free", ""))...)
	s := e.session()
	failed := 0
	for n := int64(1); ; n += max(1, n/4) {
		if n > 1_000_000 {
			e.Fatalf("Lease looks at its ctx %d times and does not succeed", n)
		}
		ctx, cancel := context.WithCancel(e.ctx)
		leased, err := s.Session.Lease(&looked{Context: ctx, cancel: cancel, at: n}, driver.Want{Limit: many})
		cancel()
		if err == nil && len(leased) > 0 {
			s.returned(leased...)
			if failed > 0 {
				break
			}
			e.Fatalf("Lease has ended with a ctx that was cancelled when it looked at it, and has leased %v", ids(leased))
		}
		if err != nil {
			failed++
		}
		if len(leased) > 0 {
			e.Fatalf("Lease returned %v beside the error %v", ids(leased), err)
		}
		s.returned(s.await("k-1", "k-2", "k-3", "free")...)
	}
}

// looked is a ctx that ends when it is looked at for the at-th time.
type looked struct {
	context.Context
	cancel func()
	at     int64
	looks  atomic.Int64
}

func (c *looked) look() {
	if c.looks.Add(1) == c.at {
		c.cancel()
	}
}

func (c *looked) Done() <-chan struct{} { c.look(); return c.Context.Done() }
func (c *looked) Err() error            { c.look(); return c.Context.Err() }
func (c *looked) Value(key any) any     { c.look(); return c.Context.Value(key) }

func confirmed[TTx any](e *env[TTx]) {
	e.enqueue(append(series("k", 20), message("free", ""))...)
	s := e.session()
	s.drain(21)
	if st := e.stats(); st.Pending != 0 || st.Parked != 0 {
		e.Fatalf("%d are pending and %d parked after all were confirmed", st.Pending, st.Parked)
	}
	if err := s.Close(e.ctx); err != nil {
		e.Fatalf("Close: %v", err)
	}
	e.session().quiet("all were confirmed to another session")
}

func settleTwice[TTx any](e *env[TTx]) {
	e.enqueue(append(series("a", 2), append(series("b", 2), append(series("c", 2), message("free", ""))...)...)...)
	s := e.session()
	l := s.await("a-1", "a-2", "b-1", "b-2", "c-1", "c-2", "free")
	all := []driver.Outcome{
		{Leased: l[0], Verdict: driver.Sent},
		{Leased: l[1], Verdict: driver.Returned},
		deferred(l[2], 0),
		{Leased: l[3], Verdict: driver.Returned},
		parked(l[4], outbox.SkipMessage),
		{Leased: l[5], Verdict: driver.Returned},
		deferred(l[6], 0),
	}
	for range 3 {
		s.settle(all...)
	}
	if list := e.parked(); len(list) != 1 || list[0].ID != "c-1" {
		e.Fatalf("%d are parked after settling thrice, want 1", len(list))
	}
	for _, again := range s.await("a-2", "b-1", "b-2", "c-2", "free") {
		want := 0
		if again.ID == "b-1" || again.ID == "free" {
			want = 1
		}
		if again.Attempts != want {
			e.Errorf("%q has %d attempts after settling thrice, want %d", again.ID, again.Attempts, want)
		}
	}
}
