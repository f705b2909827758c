package outboxtest

import (
	"fmt"
	"time"

	"github.com/txonce/txonce/outbox"
	"github.com/txonce/txonce/outbox/driver"
)

// deferCases are about messages that failed and are tried again.
func deferCases[TTx any]() []storeCase[TTx] {
	const (
		hazard  = "24: a failure stops its own key, from itself on, and nothing else"
		counted = "26: what was counted stays counted"
	)
	return []storeCase[TTx]{
		{
			name: "a deferred message holds back its key from itself on, and nothing else", hazard: hazard,
			run: deferHolds[TTx],
		},
		{
			name: "a deferred message is due after its delay, and its key goes on in order", hazard: hazard,
			run: deferEnds[TTx],
		},
		{name: "a deferred message without key holds back nothing", hazard: hazard, run: deferKeyless[TTx]},
		{name: "two deferred messages of one key keep their order", hazard: hazard, run: deferTwo[TTx]},
		{name: "an uncounted failure is not counted", hazard: counted, run: uncounted[TTx]},
		{name: "attempts survive a takeover", hazard: counted, run: attemptsSurvive[TTx]},
	}
}

func deferHolds[TTx any](e *env[TTx]) {
	e.enqueue(append(series("k", 4), message("other-1", "other"), message("free-1", ""))...)
	s := e.session()
	l := s.await("k-1", "k-2", "k-3", "k-4", "other-1", "free-1")
	all := outcomes(driver.Returned, l...)
	all[1] = deferred(l[1], time.Hour)
	s.settle(all...)
	s.sent(s.await("k-1", "other-1", "free-1")...)
	s.quiet("its key is held back")
	e.enqueue(message("k-5", "k"), message("other-2", "other"), message("free-2", ""))
	s.sent(s.await("other-2", "free-2")...)
	s.quiet("its key is held back")
	if st := e.stats(); st.Pending != 4 || st.HeldKeys != 1 || st.Parked+st.Waiting+st.Delayed != 0 {
		e.Errorf("%d pending, %d keys held, %d parked, %d waiting, %d delayed; want 4 pending and 1 key held",
			st.Pending, st.HeldKeys, st.Parked, st.Waiting, st.Delayed)
	}
	if err := s.Close(e.ctx); err != nil {
		e.Fatalf("Close: %v", err)
	}
	e.session().quiet("its key is held back, whoever asks")
}

func deferEnds[TTx any](e *env[TTx]) {
	const delay = 250 * time.Millisecond
	e.enqueue(series("k", 3)...)
	s := e.session()
	l := s.await("k-1", "k-2", "k-3")
	began := time.Now()
	s.settle(deferred(l[0], delay), driver.Outcome{Leased: l[1]}, driver.Outcome{Leased: l[2]})
	l = s.await("k-1", "k-2", "k-3")
	if took := time.Since(began); took < delay-5*time.Millisecond {
		e.Errorf("leased again after %v, deferred for %v", took, delay)
	}
	if l[0].Attempts != 1 || l[1].Attempts != 0 || l[2].Attempts != 0 {
		e.Errorf("attempts %d, %d, %d; want 1, 0, 0", l[0].Attempts, l[1].Attempts, l[2].Attempts)
	}
	if l[0].Seq >= l[1].Seq || l[1].Seq >= l[2].Seq {
		e.Errorf("sequence numbers %d, %d, %d", l[0].Seq, l[1].Seq, l[2].Seq)
	}
	s.settle(outcomes(driver.Sent, l...)...)
	e.enqueue(message("k-4", "k")) // the hold is over
	s.drain(1)
	if st := e.stats(); st.HeldKeys != 0 {
		e.Errorf("%d keys are held after everything was confirmed", st.HeldKeys)
	}
}

func deferKeyless[TTx any](e *env[TTx]) {
	var msgs []outbox.Message
	for i := range 6 {
		msgs = append(msgs, message(fmt.Sprint("free-", i), ""))
	}
	e.enqueue(msgs...)
	s := e.session()
	l := s.await(idsOf(msgs)...)
	all := outcomes(driver.Returned, l...)
	all[0], all[1] = deferred(l[0], time.Hour), deferred(l[1], 100*time.Millisecond)
	s.settle(all...)
	l = s.await("free-1", "free-2", "free-3", "free-4", "free-5")
	if l[0].Attempts != 1 || l[1].Attempts != 0 {
		e.Errorf("attempts %d and %d, want 1 and 0", l[0].Attempts, l[1].Attempts)
	}
	s.sent(l...)
	e.enqueue(message("free-6", ""))
	s.drain(1)
}

func deferTwo[TTx any](e *env[TTx]) {
	e.enqueue(append(series("a", 3), series("b", 3)...)...)
	s := e.session()
	l := s.await("a-1", "a-2", "a-3", "b-1", "b-2", "b-3")
	s.settle(
		deferred(l[0], time.Hour), deferred(l[1], 0), driver.Outcome{Leased: l[2]},
		deferred(l[4], 0), deferred(l[3], 300*time.Millisecond), driver.Outcome{Leased: l[5]},
	)
	for range 10 {
		for _, again := range s.turn() {
			if again.OrderingKey == "a" {
				e.Fatalf("leased %q, and a-1 is held back for an hour", again.ID)
			}
			s.returned(again)
		}
		pause(e.ctx)
	}
	l = s.await("b-1", "b-2", "b-3")
	if l[0].Attempts != 1 || l[1].Attempts != 1 || l[2].Attempts != 0 {
		e.Errorf("attempts %d, %d, %d; want 1, 1, 0", l[0].Attempts, l[1].Attempts, l[2].Attempts)
	}
}

func uncounted[TTx any](e *env[TTx]) {
	e.enqueue(message("keyed", "k"), message("free", ""))
	s := e.session()
	want := 0
	for _, blame := range []bool{false, false, true, false, true} {
		l := s.await("keyed", "free")
		for _, m := range l {
			if m.Attempts != want {
				e.Fatalf("%q has %d attempts, want %d", m.ID, m.Attempts, want)
			}
		}
		one, two := deferred(l[0], 0), deferred(l[1], 0)
		one.BrokerFault, two.BrokerFault = !blame, !blame
		s.settle(one, two)
		if blame {
			want++
		}
	}
	for _, m := range s.await("keyed", "free") {
		if m.Attempts != want {
			e.Errorf("%q has %d attempts, want %d", m.ID, m.Attempts, want)
		}
	}
}

func attemptsSurvive[TTx any](e *env[TTx]) {
	e.enqueue(message("keyed", "k"), message("free", ""))
	for want := range 4 {
		s := e.session()
		l := s.await("keyed", "free")
		for _, m := range l {
			if m.Attempts != want {
				e.Fatalf("%q has %d attempts, want %d", m.ID, m.Attempts, want)
			}
		}
		s.settle(deferred(l[0], 0), deferred(l[1], 0))
		if err := s.Close(e.ctx); err != nil {
			e.Fatalf("Close: %v", err)
		}
	}
}
