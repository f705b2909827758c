package consumertest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/dedup/deduptest"
)

// The cases about the answers to single deliveries.

func nilAcks(e *subscriberEnv) {
	msgs := suiteMessages(30)
	e.publish(msgs...)
	first := e.run(e.processor(suiteEffect), longGrace)
	e.consumed()
	first.runs()
	first.stop()
	again := e.processor(suiteEffect)
	second := e.run(again, longGrace)
	e.publish(suiteMessage("last", "", "last"))
	e.consumed()
	second.stop()
	if n, _ := again.count(); n != 1 {
		e.Errorf("after 30 acknowledged messages and 1 new one %d were delivered to the next subscriber; want 1", n)
	}
	e.effects(append(suiteIDs(msgs), "last")...)
	e.parked()
}

func errorRedelivers(e *subscriberEnv) {
	msgs := suiteMessages(10)
	p := e.processor(func(ctx context.Context, tx *deduptest.Tx, msg *consumer.Message) error {
		if err := suiteEffect(ctx, tx, msg); err != nil || msg.Attempt > 1 {
			return err
		}
		return errSuiteNotYet
	})
	e.publish(msgs...)
	e.run(p, longGrace)
	e.consumed()
	e.effects(suiteIDs(msgs)...)
	e.parked()
}

func lostAck(e *subscriberEnv) {
	msgs := suiteMessages(5)
	e.publish(msgs...)
	committed := make(chan struct{}, len(msgs))
	p := e.processor(suiteEffect)
	p.after = func(ctx context.Context, _ *consumer.Message, err error) error {
		if err != nil {
			return err
		}
		tell(committed)
		<-ctx.Done() // like a process that has stopped working
		return &consumer.RetryError{Err: ctx.Err(), Held: true}
	}
	dying := e.run(p, 100*time.Millisecond)
	e.awaits("a commit", committed)
	dying.stop()
	if n, err := e.broker.Left(e.Context()); err != nil || n != len(msgs) {
		e.Errorf("%d messages are not acknowledged (%v), want %d: one was acknowledged without an answer of nil", n,
			err, len(msgs))
	}
	e.run(e.processor(suiteEffect), longGrace)
	e.consumed()
	e.effects(suiteIDs(msgs)...)
	e.parked()
}

func permanentParks(e *subscriberEnv) {
	msgs := suiteMessages(9)
	p := e.processor(func(ctx context.Context, tx *deduptest.Tx, msg *consumer.Message) error {
		if msg.Headers[idHeader] == "4" {
			return errors.Join(tx.Add("poison"), consumer.Permanent(errors.New("poison")))
		}
		return suiteEffect(ctx, tx, msg)
	})
	e.publish(msgs...)
	r := e.run(p, longGrace)
	e.consumed()
	r.runs()
	e.parked("4")
	e.effects(slices.Concat(suiteIDs(msgs[:4]), suiteIDs(msgs[5:]))...)
	if n := e.db.Count("poison"); n != 0 {
		e.Errorf("a parked message has %d effects", n)
	}
}

func garbageParks(e *subscriberEnv) {
	type body struct{ N int }
	p := e.processor(consumer.JSON(func(_ context.Context, tx *deduptest.Tx, b body) error { return tx.Add(fmt.Sprint(b.N)) }))
	var again atomic.Int32
	p.after = func(_ context.Context, msg *consumer.Message, err error) error {
		if retry, ok := errors.AsType[*consumer.RetryError](err); msg.Headers[idHeader] == "b" && err != nil &&
			(!ok || !retry.Held) {
			again.Add(1)
		}
		return err
	}
	garbage := "\xff\x00{not JSON"
	e.publish(suiteMessage("a", "", `{"N":1}`), suiteMessage("b", "", garbage), suiteMessage("c", "", `{"N":2}`),
		suiteMessage("d", "", ""))
	r := e.run(p, longGrace)
	e.consumed()
	r.runs()
	e.effects("1", "2")
	e.parked("b", "d")
	for _, l := range e.letters() {
		if l.Record.Key.ID == "b" && string(l.Message.Payload) != garbage {
			e.Errorf("parked %q, sent was %q", l.Message.Payload, garbage)
		}
	}
	if n := again.Load(); n > 0 { // not counting other deliveries: a broker may repeat one for its own reasons
		e.Errorf("a message that cannot be decoded was to be delivered again %d times; want it parked the first time", n)
	}
}

func equalLetters(e *subscriberEnv) {
	p := e.processor(func(context.Context, *deduptest.Tx, *consumer.Message) error {
		return consumer.Permanent(errors.New("poison"))
	})
	keyless := consumer.Message{Payload: []byte("equal")}
	e.publish(suiteMessage("a", "", "equal"), suiteMessage("b", "", "equal"), keyless, keyless)
	e.run(p, longGrace)
	e.consumed()
	e.parked("a", "b", "", "")
}

func panicEndsRun(e *subscriberEnv) {
	msgs := suiteMessages(5)
	e.publish(msgs...)
	p := e.processor(suiteEffect)
	p.before = func(context.Context, *consumer.Message) error { panic("the Processor is broken") }
	r := e.run(p, longGrace)
	e.awaits("the end of Run", r.done)
	panicked, is := errors.AsType[*consumer.PanicError](r.err)
	if !is || panicked.Value != "the Processor is broken" || !bytes.Contains(panicked.Stack, []byte("panicEndsRun")) {
		e.Errorf("Run = %v when its Processor panicked; want a *consumer.PanicError with the stack", r.err)
	}
	if n, err := e.broker.Left(e.Context()); err != nil || n != len(msgs) {
		e.Errorf("%d messages are not acknowledged (%v), want %d", n, err, len(msgs))
	}
	e.run(e.processor(suiteEffect), longGrace)
	e.consumed()
	e.effects(suiteIDs(msgs)...)
	e.parked()
}

func sameOnRedelivery(e *subscriberEnv) {
	sent := suiteMessage("x", "the key", "the payload")
	sent.Headers["other"] = "\xff bytes"
	e.publish(sent)
	failing := e.processor(func(context.Context, *deduptest.Tx, *consumer.Message) error {
		return consumer.RetryAfter(errSuiteNotYet, 50*time.Millisecond)
	})
	twice := make(chan struct{}, 100)
	failing.after = func(_ context.Context, _ *consumer.Message, err error) error {
		tell(twice)
		return &consumer.RetryError{Err: errSuiteNotYet, After: 50 * time.Millisecond, Held: true}
	}
	first := e.run(failing, longGrace)
	e.awaits("the first delivery", twice)
	e.awaits("the second delivery", twice)
	first.stop()
	then := e.processor(suiteEffect)
	e.run(then, longGrace)
	e.consumed()
	deliveries := append(failing.of("x"), then.of("x")...)
	if len(deliveries) < 3 {
		e.Fatalf("%d deliveries, want 3 at least", len(deliveries))
	}
	for i, m := range deliveries {
		want := deliveries[0]
		if m.OrderingKey != sent.OrderingKey || string(m.Payload) != string(sent.Payload) ||
			!maps.Equal(m.Headers, want.Headers) || m.Headers["other"] != sent.Headers["other"] {
			e.Errorf("delivery %d has key %q, payload %q, headers %q; sent were %q, %q, %q",
				i+1, m.OrderingKey, m.Payload, m.Headers, sent.OrderingKey, sent.Payload, sent.Headers)
		}
		if m.Position != want.Position || m.Position == "" || !m.Time.Equal(want.Time) || m.ID != want.ID ||
			m.Topic != want.Topic {
			e.Errorf("delivery %d has position %q, time %v, id %q, topic %q; the first had %q, %v, %q, %q",
				i+1, m.Position, m.Time, m.ID, m.Topic, want.Position, want.Time, want.ID, want.Topic)
		}
	}
}

func orderWithinKey(e *subscriberEnv) {
	var (
		msgs   []consumer.Message
		mu     sync.Mutex
		order  = map[string][]string{}
		failed = map[string]bool{}
		first  = make(chan struct{}, 100)
	)
	for i := range 60 {
		key := fmt.Sprint("key", i%3)
		msgs = append(msgs, suiteMessage(fmt.Sprintf("%s/%02d", key, i), key, "x"))
	}
	p := e.processor(func(ctx context.Context, tx *deduptest.Tx, msg *consumer.Message) error {
		id := msg.Headers[idHeader]
		mu.Lock()
		defer mu.Unlock()
		if again := failed[id]; !again && id == "key0/00" {
			failed[id] = true
			tell(first)
			return consumer.RetryAfter(errSuiteNotYet, time.Second) // meanwhile the other messages are sent
		} else if !again && strings.HasSuffix(id, "7") {
			failed[id] = true
			return errSuiteNotYet
		}
		return suiteEffect(ctx, tx, msg)
	})
	p.after = func(_ context.Context, msg *consumer.Message, err error) error {
		mu.Lock()
		defer mu.Unlock()
		// Not in the handler, which runs again when other messages of its batch fail. A duplicate may be delivered at
		// any time.
		if id := msg.Headers[idHeader]; err == nil && !slices.Contains(order[msg.OrderingKey], id) {
			order[msg.OrderingKey] = append(order[msg.OrderingKey], id)
		}
		return err
	}
	e.publish(msgs[0])
	e.run(p, longGrace)
	e.awaits("the first message", first)
	e.publish(msgs[1:]...)
	e.consumed()
	e.effects(suiteIDs(msgs)...)
	mu.Lock()
	defer mu.Unlock()
	for key, got := range order {
		if !slices.IsSorted(got) {
			e.Errorf("%s was handled in the order %v", key, got)
		}
	}
}

func delayKept(e *subscriberEnv) {
	const delay = 700 * time.Millisecond
	var mu sync.Mutex
	var at []time.Time
	p := e.processor(suiteEffect)
	p.before = func(_ context.Context, msg *consumer.Message) error {
		if msg.Headers[idHeader] != "x" {
			return nil
		}
		mu.Lock()
		defer mu.Unlock()
		if at = append(at, time.Now()); len(at) < 3 {
			return &consumer.RetryError{Err: errSuiteNotYet, After: delay}
		}
		return nil
	}
	e.publish(suiteMessage("x", "", "x"))
	e.run(p, longGrace)
	e.publish(suiteMessages(5)...)
	e.consumed()
	mu.Lock()
	defer mu.Unlock()
	for i := 1; i < len(at); i++ {
		if gap := at[i].Sub(at[i-1]); gap < delay-20*time.Millisecond {
			e.Errorf("delivered again after %v; asked for was %v", gap, delay)
		}
	}
	for i, m := range p.of("x") {
		if m.Attempt != i+1 {
			e.Errorf("delivery %d has Attempt %d", i+1, m.Attempt)
		}
	}
	e.effects(append(suiteIDs(suiteMessages(5)), "x")...)
}

func attemptsCountOn(e *subscriberEnv) {
	e.publish(suiteMessage("x", "", "x"))
	failing := e.processor(suiteEffect)
	tried := make(chan struct{}, 100)
	failing.before = func(context.Context, *consumer.Message) error {
		tell(tried)
		return &consumer.RetryError{Err: errSuiteNotYet, After: 50 * time.Millisecond}
	}
	first := e.run(failing, longGrace)
	e.awaits("the first attempt", tried)
	e.awaits("the second attempt", tried)
	first.stop()
	then := e.processor(suiteEffect)
	e.run(then, longGrace)
	e.consumed()
	if before, got := len(failing.of("x")), then.of("x")[0].Attempt; got <= before {
		e.Errorf("after %d attempts at one subscriber another one was given Attempt %d", before, got)
	}
}

func batchesForm(e *subscriberEnv) {
	msgs := suiteMessages(200)
	running, finish := make(chan struct{}, len(msgs)), make(chan struct{})
	p := e.processor(func(ctx context.Context, tx *deduptest.Tx, msg *consumer.Message) error {
		tell(running)
		<-finish
		<-time.After(5 * time.Millisecond) // more messages arrive meanwhile
		return suiteEffect(ctx, tx, msg)
	})
	e.publish(msgs[0])
	e.run(p, longGrace)
	e.awaits("a batch of the one message there is", running)
	e.publish(msgs[1:]...)
	<-time.After(2 * time.Second) // they wait until the first message is handled
	close(finish)
	e.consumed()
	if _, largest := p.count(); largest < 5 {
		e.Errorf("199 messages waited, and the largest batch was of %d", largest)
	}
	e.effects(suiteIDs(msgs)...)
}

func thirtyDeferrals(e *subscriberEnv) {
	var mu sync.Mutex
	deferrals := 0
	p := e.processor(suiteEffect)
	p.before = func(_ context.Context, msg *consumer.Message) error {
		mu.Lock()
		defer mu.Unlock()
		if msg.Headers[idHeader] == "3" && deferrals < 30 {
			deferrals++
			return &consumer.RetryError{Err: errSuiteNotYet, After: 10 * time.Millisecond, Held: true}
		}
		return nil
	}
	msgs := suiteMessages(10)
	e.publish(msgs...)
	e.run(p, longGrace)
	e.consumed()
	e.effects(suiteIDs(msgs)...)
	e.parked()
	deferred := p.of("3")
	if len(deferred) < 31 { // more if the broker repeated one for its own reasons
		e.Fatalf("a message deferred 30 times was delivered %d times; want 31", len(deferred))
	}
	if last := deferred[30]; last.Attempt > 3 {
		// a delivery that was lost in transit counts, because the broker does not notice that
		e.Errorf("30 uncounted deferrals were counted: Attempt %d", last.Attempt)
	}
}
