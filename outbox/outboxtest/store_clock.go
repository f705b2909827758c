package outboxtest

import (
	"time"

	"github.com/txonce/txonce/outbox/driver"
)

// clockCases are about a database whose clock is set back.
func clockCases[TTx any]() []storeCase[TTx] {
	const hazard = "52: after the clock was set back, nothing lasts longer than it was given for"
	return []storeCase[TTx]{
		{name: "the hold of a dead session ends although the clock was set back", hazard: hazard, run: deadAhead[TTx]},
		{name: "a living session keeps its hold when the clock is set back", hazard: hazard, run: livesAhead[TTx]},
		{
			name: "a deferred message is due when the clock was set back behind its failure", hazard: hazard,
			run: deferredAhead[TTx],
		},
	}
}

// setBack makes all that was written look as if the clock had been set back by an hour since.
func (e *env[TTx]) setBack() {
	e.Helper()
	if e.SetBack == nil {
		e.Fatalf("Outbox.SetBack is nil")
	}
	if err := e.again(func() error { return e.SetBack(e.ctx, time.Hour) }); err != nil {
		e.Fatalf("SetBack: %v", err)
	}
}

func deadAhead[TTx any](e *env[TTx]) {
	e.enqueue(series("k", 3)...)
	dead := e.open("dead", e.ttl)
	dead.renew()
	_, _ = dead.tryLease(driver.Want{Limit: many})
	e.setBack()
	other := e.open("other", 2*limit)
	other.renew()
	other.sent(other.await("k-1", "k-2", "k-3")...) // it waits for limit, which is shorter than an hour
}

func livesAhead[TTx any](e *env[TTx]) {
	e.enqueue(series("k", 3)...)
	alive := e.open("alive", 2*limit)
	alive.renew()
	leased := alive.await("k-1", "k-2", "k-3")
	e.setBack()
	other := e.open("other", 2*limit)
	for range 5 {
		if l := other.turn(); len(l) > 0 {
			e.Fatalf("%v was leased from a session that lives", ids(l))
		}
	}
	alive.renew()
	alive.sent(leased...)
	e.setBack() // now the living session is the first to notice
	alive.renew()
	for _, r := range e.stats().Relays {
		if left := r.Until.Sub(e.stats().Now); left > 2*limit+time.Second {
			e.Errorf("the hold of %q ends in %v, given for %v", r.Name, left, 2*limit)
		}
	}
}

func deferredAhead[TTx any](e *env[TTx]) {
	e.enqueue(append(series("k", 2), message("free-1", ""))...)
	s := e.session()
	l := s.await("k-1", "k-2", "free-1")
	s.settle(deferred(l[0], time.Minute), driver.Outcome{Leased: l[1]}, deferred(l[2], time.Minute))
	s.close()
	e.setBack()
	if st := e.stats(); st.HeldKeys != 0 {
		e.Errorf("%d keys are held, want 0", st.HeldKeys)
	}
	s = e.session()
	l = s.await("k-1", "k-2", "free-1")
	s.settle(deferred(l[0], time.Hour), driver.Outcome{Leased: l[1]}, deferred(l[2], time.Hour))
	s.quiet("it was deferred again, by the new clock")
	if st := e.stats(); st.HeldKeys != 1 {
		e.Errorf("%d keys are held, want 1", st.HeldKeys)
	}
}
