package outboxtest

import (
	"errors"
	"fmt"
	"time"

	"github.com/txonce/txonce/outbox"
	"github.com/txonce/txonce/outbox/driver"
)

func releaseByFilter[TTx any](e *env[TTx]) {
	s := e.session()
	var msgs []outbox.Message
	for i := range 6 {
		m := message(fmt.Sprint("m", i), fmt.Sprint("k", i))
		if m.Topic = "one"; i%2 > 0 {
			m.Topic = "two"
		}
		msgs = append(msgs, m)
	}
	e.enqueue(msgs...)
	park := func(text string, l ...driver.Leased) {
		all := outcomes(driver.Parked, l...)
		for i := range all {
			all[i].Err = errors.New(text)
		}
		s.settle(all...)
	}
	l := s.await("m0", "m1", "m2", "m3", "m4", "m5")
	park("too large: 100%_", l[:2]...)
	until(e, time.Now().Add(2*time.Millisecond))
	before := e.stats().Now
	until(e, time.Now().Add(2*time.Millisecond))
	park("Denied", l[2:]...)
	select1 := func(what string, f outbox.ParkedFilter, want ...string) {
		e.Helper()
		list, err := e.Operations.Parked(e.ctx, f)
		if err != nil {
			e.Fatalf("%s: %v", what, err)
		}
		got := map[string]bool{}
		for _, p := range list {
			got[p.ID] = true
		}
		ok := len(got) == len(want)
		for _, id := range want {
			ok = ok && got[id]
		}
		if !ok {
			e.Errorf("%s selects %v, want %v", what, got, want)
		}
	}
	select1("a topic", outbox.ParkedFilter{Topic: "one"}, "m0", "m2", "m4")
	select1("an error", outbox.ParkedFilter{Error: "Denied"}, "m2", "m3", "m4", "m5")
	select1("an error in another case", outbox.ParkedFilter{Error: "denied"})
	select1("an error with signs of its own", outbox.ParkedFilter{Error: "100%_"}, "m0", "m1")
	select1("a pattern", outbox.ParkedFilter{Error: "D%d"})
	select1("a time since", outbox.ParkedFilter{Since: before}, "m2", "m3", "m4", "m5")
	select1("a time until", outbox.ParkedFilter{Until: before}, "m0", "m1")
	select1("all together", outbox.ParkedFilter{
		Topic: "one", OrderingKey: "k2", Error: "nied", Since: before,
		Until: before.Add(time.Hour),
	}, "m2")
	for what, do := range map[string]struct {
		got  func() (int, error)
		want int
	}{
		"UnparkAll of none": {func() (int, error) {
			return outbox.UnparkAll(e.ctx, e.Operations, outbox.ParkedFilter{Topic: "three"})
		}, 0},
		"DiscardAll of none": {func() (int, error) {
			return outbox.DiscardAll(e.ctx, e.Operations, outbox.ParkedFilter{Since: before.Add(time.Hour)})
		}, 0},
	} {
		if n, err := do.got(); n != do.want || err != nil {
			e.Errorf("%s: %d, error %v; want %d", what, n, err, do.want)
		}
	}
	if n, err := outbox.DiscardAll(e.ctx, e.Operations, outbox.ParkedFilter{Limit: 10}); n != 0 || err == nil {
		e.Errorf("DiscardAll without a condition: %d, error %v; want it refused", n, err)
	}
	if n, err := outbox.DiscardAll(e.ctx, e.Operations, outbox.ParkedFilter{Error: "too large"}); n != 2 || err != nil {
		e.Fatalf("DiscardAll by error: %d, error %v; want 2", n, err)
	}
	if n, err := outbox.UnparkAll(e.ctx, e.Operations, outbox.ParkedFilter{Topic: "one", Limit: 1}); n != 1 ||
		err != nil {
		e.Fatalf("UnparkAll of one: %d, error %v", n, err)
	}
	s.sent(s.await("m2")...)
	if n, err := outbox.UnparkAll(e.ctx, e.Operations, outbox.ParkedFilter{}); n != 3 || err != nil {
		e.Errorf("UnparkAll of what is left: %d, error %v; want 3", n, err)
	}
	s.sent(s.await("m3", "m4", "m5")...)
	s.quiet("everything was confirmed or discarded")
}

// discardWaiting has more messages than one page holds: messages behind a parked one must not become pending because
// that one is deleted first.
func discardWaiting[TTx any](e *env[TTx]) {
	const behind = 230
	s := e.session()
	e.enqueue(message("head", "k"))
	l := s.await("head")
	s.settle(parked(l[0], outbox.BlockKey))
	e.enqueue(series("k", behind)...)
	for e.stats().Waiting < behind {
		s.quiet("the first message of its key is parked")
		if e.ctx.Err() != nil {
			e.Fatalf("%d wait, want %d", e.stats().Waiting, behind)
		}
		pause(e.ctx)
	}
	if n, err := outbox.DiscardAll(e.ctx, e.Operations, outbox.ParkedFilter{OrderingKey: "k"}); n != behind+1 ||
		err != nil {
		e.Errorf("DiscardAll: %d, error %v; want %d", n, err, behind+1)
	}
	s.quiet("its key was discarded")
	e.enqueue(message("after", "k"))
	s.sent(s.await("after")...)
}
