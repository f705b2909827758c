package outboxtest

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/txonce/txonce/outbox"
	"github.com/txonce/txonce/outbox/driver"
)

// fenceCases are about completions that come too late.
func fenceCases[TTx any]() []storeCase[TTx] {
	const hazard = "26: every completion shows owner and token, and a late one changes nothing"
	var cases []storeCase[TTx]
	for _, v := range []struct {
		name    string
		outcome func(driver.Leased) driver.Outcome
	}{
		{"Sent", func(l driver.Leased) driver.Outcome { return driver.Outcome{Leased: l, Verdict: driver.Sent} }},
		{"Returned", func(l driver.Leased) driver.Outcome { return driver.Outcome{Leased: l, Verdict: driver.Returned} }},
		{"Deferred", func(l driver.Leased) driver.Outcome { return deferred(l, time.Hour) }},
		{"Parked", func(l driver.Leased) driver.Outcome { return parked(l, outbox.BlockKey) }},
	} {
		cases = append(cases, storeCase[TTx]{
			name: "a late " + v.name + " changes nothing, and is ErrLeaseLost", hazard: hazard,
			run: func(e *env[TTx]) { lateSettle(e, v.outcome) },
		})
	}
	return append(cases, []storeCase[TTx]{
		{name: "one stale token among many: nothing is changed", hazard: hazard, run: oneStale[TTx]},
		{name: "only the session that holds a shard settles its messages", hazard: hazard, run: foreignSettle[TTx]},
		{name: "a closed session settles nothing", hazard: hazard, run: closedSettle[TTx]},
		{name: "a completion that races a takeover happens wholly or not at all", hazard: hazard, run: settleRace[TTx]},
	}...)
}

func lateSettle[TTx any](e *env[TTx], outcome func(driver.Leased) driver.Outcome) {
	msgs := append(series("k", 3), message("other", "other"), message("free", ""))
	e.enqueue(msgs...)
	a, stale := e.lapsed(len(msgs))
	late := func(when string) {
		e.Helper()
		var all []driver.Outcome
		for _, l := range stale {
			all = append(all, outcome(l))
		}
		if err := a.trySettle(all...); !errors.Is(err, driver.ErrLeaseLost) {
			e.Fatalf("late completion %s: error %v, want ErrLeaseLost", when, err)
		}
		if err := a.trySettle(all[0]); !errors.Is(err, driver.ErrLeaseLost) {
			e.Fatalf("late completion of one message %s: error %v, want ErrLeaseLost", when, err)
		}
	}
	b := e.session()
	for b.hold.Shards < b.hold.TotalShards {
		b.renew()
		pause(e.ctx)
	}
	late("after the takeover")
	leased := b.await(idsOf(msgs)...)
	late("while the messages are leased again")
	for _, l := range leased {
		if l.Attempts != 0 {
			e.Errorf("%q has %d attempts by a late completion", l.ID, l.Attempts)
		}
	}
	b.returned(leased...)
	leased = b.await(idsOf(msgs)...)
	if st := e.stats(); st.Pending != int64(len(msgs)) || st.Parked+st.Waiting+st.HeldKeys != 0 {
		e.Errorf("late completions left %d of %d pending, %d parked, %d waiting, %d keys held", st.Pending, len(msgs),
			st.Parked, st.Waiting, st.HeldKeys)
	}
	b.sent(leased...)
	b.quiet("everything was confirmed")
	late("after all was confirmed")
	b.quiet("everything was confirmed")
}

// oneStale forges one token, at several positions, in calls that are otherwise correct.
func oneStale[TTx any](e *env[TTx]) {
	s := e.session()
	var msgs []outbox.Message
	for _, key := range keysInShards(8, s.hold.TotalShards) {
		msgs = append(msgs, series(key, 2)...)
	}
	e.enqueue(msgs...)
	leased := s.await(idsOf(msgs)...)
	n := len(leased)
	for _, at := range []int{0, 1, n / 2, n - 1} {
		for _, by := range []int64{-1, +1} {
			var all []driver.Outcome
			for i, l := range leased {
				switch i % 4 {
				case 0:
					all = append(all, driver.Outcome{Leased: l, Verdict: driver.Sent})
				case 1:
					all = append(all, deferred(l, time.Hour))
				case 2:
					all = append(all, parked(l, outbox.ParkKey))
				case 3:
					all = append(all, driver.Outcome{Leased: l, Verdict: driver.Returned})
				}
			}
			all[at].Token += by
			if err := s.trySettle(all...); !errors.Is(err, driver.ErrLeaseLost) {
				e.Fatalf("token %d of %d is wrong by %d: error %v, want ErrLeaseLost", at, n, by, err)
			}
		}
	}
	if st := e.stats(); st.Pending != int64(n) || st.Parked+st.Waiting+st.HeldKeys != 0 {
		e.Fatalf("%d of %d are pending, %d parked, %d waiting, %d keys held, after calls with one stale token each",
			st.Pending, n, st.Parked, st.Waiting, st.HeldKeys)
	}
	s.close()
	for _, l := range e.session().await(idsOf(msgs)...) {
		if l.Attempts != 0 {
			e.Errorf("%q has %d attempts by a call with a stale token", l.ID, l.Attempts)
		}
	}
}

// tryClose is one call of Close.
func (s *holder) tryClose() error { return s.again(func() error { return s.Close(s.ctx) }) }

func (s *holder) close() {
	s.Helper()
	if err := s.tryClose(); err != nil {
		s.Fatalf("Close: %v", err)
	}
}

func foreignSettle[TTx any](e *env[TTx]) {
	a := e.session()
	e.enqueue(series("k", 2)...)
	leased := a.await("k-1", "k-2")
	b := e.session()
	for _, v := range []driver.Verdict{driver.Sent, driver.Deferred, driver.Parked} {
		if err := b.trySettle(outcomes(v, leased...)...); !errors.Is(err, driver.ErrLeaseLost) {
			e.Fatalf("a session settles what another one holds: error %v, want ErrLeaseLost", err)
		}
	}
	a.returned(leased...)
	b.close()
	a.await("k-1", "k-2")
}

func closedSettle[TTx any](e *env[TTx]) {
	e.enqueue(series("k", 2)...)
	a := e.session()
	leased := a.await("k-1", "k-2")
	a.close()
	for _, v := range []driver.Verdict{driver.Sent, driver.Deferred, driver.Parked} {
		if err := a.trySettle(outcomes(v, leased...)...); !errors.Is(err, driver.ErrLeaseLost) {
			e.Fatalf("Settle after Close: error %v, want ErrLeaseLost", err)
		}
	}
	if err := a.tryRenew(); !errors.Is(err, driver.ErrLeaseLost) {
		e.Fatalf("Renew after Close: error %v, want ErrLeaseLost", err)
	}
	e.session().drain(2)
}

// settleRace: the successor must find all of the messages or none.
func settleRace[TTx any](e *env[TTx]) {
	for round := range 6 {
		var msgs []outbox.Message
		for i := range 40 {
			msgs = append(msgs, message(fmt.Sprint(round, "-", i), fmt.Sprint("key", i)))
		}
		e.enqueue(msgs...)
		a, leased := e.lapsed(len(msgs))
		settled := make(chan error, 1)
		go func() { settled <- a.trySettle(outcomes(driver.Sent, leased...)...) }()
		b := e.session()
		err := <-settled
		var found []string
		for range 5 {
			found = append(found, ids(b.turn())...)
		}
		for err != nil && len(found) < len(msgs) && e.ctx.Err() == nil {
			found = append(found, ids(b.turn())...) // a shard that was being settled is taken later
			pause(e.ctx)
		}
		slices.Sort(found)
		switch {
		case err == nil && len(found) > 0:
			e.Fatalf("a late Settle succeeded, and %d of %d messages were leased to the successor", len(found),
				len(msgs))
		case err != nil && !errors.Is(err, driver.ErrLeaseLost):
			e.Fatalf("Settle: %v", err)
		case err != nil && len(slices.Compact(found)) != len(msgs):
			e.Fatalf("a late Settle was refused, and only %d of %d messages are left", len(found), len(msgs))
		}
		b.close()
		e.drainRest()
	}
}

// drainRest confirms all pending messages.
func (e *env[TTx]) drainRest() {
	e.Helper()
	s := e.session()
	for idle, turns := 0, 0; idle < 3; turns++ {
		leased := s.turn()
		if idle++; len(leased) > 0 {
			s.sent(leased...)
			idle = 0
		}
		if turns > many {
			e.Fatalf("what was confirmed is leased again and again: %s", few(ids(leased)))
		}
	}
	s.close()
}
