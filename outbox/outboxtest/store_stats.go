package outboxtest

import (
	"context"
	"strings"
	"time"

	"github.com/txonce/txonce/outbox"
	"github.com/txonce/txonce/outbox/driver"
)

// statsAges: pending messages, whether tried or not, and parked messages each have an age of their own.
func statsAges[TTx any](e *env[TTx]) {
	other := message("other", "other")
	other.Topic = "another topic"
	e.enqueue(message("1", "a"))
	between := e.stats().Now
	until(e, time.Now().Add(20*time.Millisecond))
	e.enqueue(message("2", "b"), message("3", ""), other)
	s := e.session()
	until(e, time.Now().Add(20*time.Millisecond))
	l := s.await("1", "2", "3", "other")
	ages := func(what string, pending, parked *driver.Leased) (st outbox.Stats) {
		e.Helper()
		st = e.stats()
		for _, of := range []struct {
			name  string
			got   time.Duration
			first *driver.Leased
		}{{"pending", st.PendingAge, pending}, {"parked", st.ParkedAge, parked}} {
			var want time.Duration
			if of.first != nil {
				want = st.Now.Sub(of.first.Enqueued)
			}
			if of.got != want {
				e.Errorf("%s: the first %s message has been due for %v, want %v", what, of.name, of.got, want)
			}
		}
		return st
	}
	st := ages("while all are leased", &l[0], nil)
	if got, since := st.Topics["another topic"].PendingAge, st.Now.Sub(between); got <= 0 || got > since {
		e.Errorf("the other topic's age is %v, want at most %v", got, since)
	}
	if got := st.Topics[topic].PendingAge; got != st.PendingAge {
		e.Errorf("the topic's age is %v, want %v", got, st.PendingAge)
	}
	s.settle(parked(l[0], outbox.BlockKey), deferred(l[1], time.Hour),
		driver.Outcome{Leased: l[2], Verdict: driver.Sent}, driver.Outcome{Leased: l[3], Verdict: driver.Sent})
	st = ages("one parked, one held back", &l[1], &l[0])
	of := st.Topics[topic]
	if of.PendingAge != st.PendingAge || of.ParkedAge != st.ParkedAge {
		e.Errorf("the topic's ages are %v and %v, want %v and %v", of.PendingAge, of.ParkedAge, st.PendingAge,
			st.ParkedAge)
	}
	if of.Failing != 1 || !strings.Contains(of.Error, errRefused.Error()) {
		e.Errorf("%d are failing because of %q, want 1 because of %q", of.Failing, of.Error, errRefused)
	}
	e.enqueue(message("a-2", "a"))
	e.wantParked(s, map[string]string{"1": "", "a-2": "1"}, true)
	ages("one waits", &l[1], &l[0])
	e.discard(l[0].Seq)
	s.sent(s.await("a-2")...)
	st = ages("nothing is parked", &l[1], nil)
	if of := st.Topics[topic]; of.ParkedAge != 0 || of.Pending != 1 {
		e.Errorf("Stats of the topic: %+v", of)
	}
}

// statsNotBefore: a message is due from its NotBefore on, even if no session has polled since, and its age counts from
// then.
func statsNotBefore[TTx any](e *env[TTx]) {
	_, at := e.later(func(_ int, at time.Time) []outbox.Message {
		keyed, free := message("keyed", "k"), message("free", "")
		keyed.NotBefore, free.NotBefore = at, at
		return []outbox.Message{keyed, free}
	})
	for {
		st := e.stats()
		if due := !st.Now.Before(at.Add(time.Millisecond)); due {
			break
		}
		if e.stats().Now.Before(at) && (st.Delayed != 2 || st.Pending != 0 || st.PendingAge != 0) {
			e.Fatalf("before their time: %+v", st)
		}
		pause(e.ctx)
	}
	late := func(what string, want outbox.TopicStats) {
		e.Helper()
		st := e.stats()
		of := st.Topics[topic]
		if numbers(of) != want {
			e.Fatalf("%s: Stats of the topic are %+v, want %+v", what, of, want)
		}
		for _, age := range []time.Duration{st.PendingAge, of.PendingAge} {
			if age > st.Now.Sub(at) || (age > 0) != (want.Pending > 0) {
				e.Errorf("%s: a pending message is late by %v, and was due for %v", what, age, st.Now.Sub(at))
			}
		}
		for _, age := range []time.Duration{st.ParkedAge, of.ParkedAge} {
			if age > st.Now.Sub(at) || (age > 0) != (want.Parked > 0) {
				e.Errorf("%s: a parked message is late by %v, and was due for %v", what, age, st.Now.Sub(at))
			}
		}
	}
	late("before a session has looked", outbox.TopicStats{Pending: 2})
	s := e.session()
	l := s.await("keyed", "free")
	late("leased", outbox.TopicStats{Pending: 2})
	s.settle(deferred(l[0], 0), deferred(l[1], 0))
	late("held back", outbox.TopicStats{Pending: 2})
	l = s.await("keyed", "free")
	s.settle(parked(l[0], outbox.BlockKey), parked(l[1], outbox.BlockKey))
	late("parked", outbox.TopicStats{Parked: 2})
	e.unpark(l[0].Seq, l[1].Seq)
	late("unparked", outbox.TopicStats{Pending: 2})
	s.drain(2)
}

// statsWhileMoving: a message that changes its state while Stats run is counted in one state.
func statsWhileMoving[TTx any](e *env[TTx]) {
	const messages, looks = 5, 25
	s := e.session()
	e.enqueue(series("k", messages)...)
	ctx, stop := context.WithCancel(e.ctx)
	looked := make(chan struct{})
	var left []outbox.Stats
	go func() {
		defer close(looked)
		defer stop()
		for range looks {
			st, err := e.Operations.Stats(e.ctx)
			if err != nil {
				e.Errorf("Stats: %v", err)
				return
			}
			if st.Pending+st.Parked+st.Waiting != messages {
				left = append(left, st)
			}
		}
	}()
	for ctx.Err() == nil {
		l := s.await("k-1", "k-2", "k-3", "k-4", "k-5")
		all := outcomes(driver.Returned, l...)
		all[0] = parked(l[0], outbox.BlockKey)
		s.settle(all...)
		s.turn() // the message behind it follows
		e.unpark(l[0].Seq)
		pause(ctx)
	}
	<-looked
	for _, st := range left {
		e.Errorf("%d pending, %d parked, %d waiting: want %d together", st.Pending, st.Parked, st.Waiting, messages)
	}
	s.drain(messages)
}
