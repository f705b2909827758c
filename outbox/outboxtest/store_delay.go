package outboxtest

import (
	"fmt"
	"time"

	"github.com/txonce/txonce/outbox"
	"github.com/txonce/txonce/outbox/driver"
)

// delayCases are about messages with a NotBefore.
func delayCases[TTx any]() []storeCase[TTx] {
	const hazard = "24: what is to come later holds back nobody, and is not forgotten"
	return []storeCase[TTx]{
		{
			name: "a not-before time holds back nobody, and then joins the end of its key", hazard: hazard,
			run: notBefore[TTx],
		},
		{name: "not-before times of one key come in their order", hazard: hazard, run: notBeforeOrder[TTx]},
		{name: "a not-before time that has passed is none", hazard: hazard, run: notBeforePast[TTx]},
		{name: "a rollback forgets what was to come later", hazard: hazard, run: notBeforeRollback[TTx]},
		{name: "what comes later arrives with every field intact", hazard: hazard, run: notBeforeIntact[TTx]},
	}
}

// later commits the messages that make returns for a time of the database's clock, and makes sure that the commit came
// before that time.
func (e *env[TTx]) later(make func(round int, at time.Time) []outbox.Message) (round int, at time.Time) {
	e.Helper()
	for delay := 400 * time.Millisecond; ; delay *= 2 {
		at = e.stats().Now.Add(delay)
		e.enqueue(make(round, at)...)
		if e.stats().Now.Before(at.Add(-delay / 4)) {
			return round, at
		}
		e.drainRest() // too slow: it may have been due at once
		for st := e.stats(); st.Delayed+st.Pending > 0; st = e.stats() {
			e.drainRest() // it may have come due since the last look
		}
		round++
	}
}

func (e *env[TTx]) notYet(at time.Time, what string) {
	e.Helper()
	if now := e.stats().Now; now.Before(at) {
		e.Errorf("%s was leased by %v, and is not to come before %v", what, now, at)
	}
}

func notBefore[TTx any](e *env[TTx]) {
	name := func(round int, what string) string { return fmt.Sprint(round, " ", what) }
	round, at := e.later(func(round int, at time.Time) []outbox.Message {
		late, free := message(name(round, "late"), "k"), message(name(round, "free"), "")
		late.NotBefore, free.NotBefore = at, at
		return []outbox.Message{late, message(name(round, "first"), "k"), free, message(name(round, "second"), "k")}
	})
	st := e.stats()
	if e.stats().Now.Before(at) && (st.Delayed != 2 || st.Pending != 2 || st.Topics[topic].Delayed != 2) {
		e.Errorf("%d delayed, %d of the topic, %d pending; want 2, 2, 2", st.Delayed, st.Topics[topic].Delayed,
			st.Pending)
	}
	hour := message("in an hour", "k")
	hour.NotBefore = st.Now.Add(time.Hour)
	e.enqueue(hour)
	s := e.session()
	var got []driver.Leased
	for len(got) < 4 {
		for _, l := range s.turn() {
			if !l.NotBefore.IsZero() || l.ID == name(round, "late") || l.ID == name(round, "free") {
				e.notYet(at, l.ID)
			}
			got = append(got, l)
			s.sent(l)
		}
		if e.ctx.Err() != nil {
			e.Fatalf("leased only %v", ids(got))
		}
		pause(e.ctx)
	}
	e.enqueue(message("last", "k"))
	got = append(got, s.drain(1)...)
	e.wantOrder(got, map[string][]string{"k": {name(round, "first"), name(round, "second"), name(round, "late"), "last"}})
	if st := e.stats(); st.Delayed != 1 {
		e.Errorf("%d are delayed at the end, want the one that comes in an hour", st.Delayed)
	}
}

// notBeforeOrder leases when all of them are due.
func notBeforeOrder[TTx any](e *env[TTx]) {
	round, at := e.later(func(round int, at time.Time) []outbox.Message {
		var msgs []outbox.Message
		for _, i := range []int{3, 1, 2, 0} {
			m := message(fmt.Sprint(round, "-", i), "k")
			m.NotBefore = at.Add(time.Duration(i) * 20 * time.Millisecond)
			msgs = append(msgs, m)
		}
		return append(msgs, message(fmt.Sprint(round, "-now"), "k"))
	})
	for e.stats().Now.Before(at.Add(60 * time.Millisecond)) {
		pause(e.ctx)
	}
	want := []string{fmt.Sprint(round, "-now")}
	for i := range 4 {
		want = append(want, fmt.Sprint(round, "-", i))
	}
	e.wantOrder(e.session().drain(5), map[string][]string{"k": want})
}

func notBeforePast[TTx any](e *env[TTx]) {
	one, two := message("1", "k"), message("2", "k")
	one.NotBefore, two.NotBefore = e.stats().Now.Add(-time.Second), time.Unix(0, 0)
	e.enqueue(one, message("between", "k"), two)
	if st := e.stats(); st.Delayed != 0 || st.Pending != 3 {
		e.Errorf("%d are delayed and %d pending, want 0 and 3", st.Delayed, st.Pending)
	}
	e.wantOrder(e.session().drain(3), map[string][]string{"k": {"1", "between", "2"}})
}

func notBeforeRollback[TTx any](e *env[TTx]) {
	m := message("late", "k")
	m.NotBefore = e.stats().Now.Add(100 * time.Millisecond)
	_ = e.inTx(func(tx TTx) error {
		if err := e.Writer.Enqueue(e.ctx, tx, m); err != nil {
			e.Errorf("enqueue: %v", err)
		}
		return errUndo
	})
	s := e.session()
	for e.stats().Now.Before(m.NotBefore.Add(50 * time.Millisecond)) {
		s.quiet("it was rolled back")
		pause(e.ctx)
	}
	s.quiet("it was rolled back")
}

func notBeforeIntact[TTx any](e *env[TTx]) {
	at := e.stats().Now.Add(300 * time.Millisecond)
	msgs := hardMessages()
	for i := range msgs {
		msgs[i].NotBefore = at
	}
	e.enqueue(msgs...)
	after := e.stats().Now
	s := e.session()
	for i, l := range s.await(idsOf(msgs)...) {
		e.wantSame(l.Message, msgs[i])
		if want := driver.Shard(&msgs[i], s.hold.TotalShards); l.Shard != want {
			e.Errorf("%.80q is of shard %d, want %d", l.ID, l.Shard, want)
		}
		if l.Enqueued.After(after) {
			e.Errorf("%.80q says it was enqueued at %v, and was before %v", l.ID, l.Enqueued, after)
		}
	}
}
