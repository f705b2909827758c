package consumertest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/consumer/driver"
	"github.com/txonce/txonce/dedup/deduptest"
)

// The cases about the hooks of a driver.SourceTrace.

// sourceEvents records the calls of a SourceTrace.
type sourceEvents struct {
	check func(e *namedEvent) // nil: none

	mu  sync.Mutex
	all []namedEvent
}

type namedEvent struct {
	name string
	driver.SourceEvent
}

// trace gives the subscribers that run from now on a SourceTrace that records.
func (e *subscriberEnv) trace() *sourceEvents {
	e.Helper()
	tracer, ok := e.broker.(Tracer)
	if !ok {
		e.Fatal("this Broker is no Tracer: its Subscriber takes a driver.SourceTrace, or Features.DoesNotApply says why there can be none")
	}
	events := &sourceEvents{}
	records := func(name string) func(context.Context, driver.SourceEvent) {
		return func(_ context.Context, event driver.SourceEvent) {
			named := namedEvent{name, event}
			if events.check != nil {
				events.check(&named)
			}
			events.mu.Lock()
			defer events.mu.Unlock()
			events.all = append(events.all, named)
		}
	}
	tracer.Trace(&driver.SourceTrace{
		Assigned: records("assigned"), Revoked: records("revoked"), Gap: records("gap"), Acked: records("acked"),
		Lost: records("lost"),
	})
	return events
}

// named returns the events of that name, in their order.
func (s *sourceEvents) named(names ...string) (found []namedEvent) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, event := range s.all {
		if slices.Contains(names, event.name) {
			found = append(found, event)
		}
	}
	return found
}

// await waits for n events of that name.
func (s *sourceEvents) await(e *subscriberEnv, name string, n int) {
	e.Helper()
	e.eventually(func() error {
		if found := len(s.named(name)); found < n {
			return fmt.Errorf("the hook of %q was called %d times, want %d", name, found, n)
		}
		return nil
	})
}

type sourcePartition struct {
	source    string
	partition int32
}

func (n *namedEvent) partition() sourcePartition { return sourcePartition{n.Source, n.Partition} }

func acksReported(e *subscriberEnv) {
	events := e.trace()
	events.check = func(event *namedEvent) {
		if event.name == "acked" && event.Message != nil && e.db.Count(event.Message.Headers[idHeader]) == 0 {
			e.Errorf("an acknowledgement of message %s is reported, and it was not handled",
				event.Message.Headers[idHeader])
		}
	}
	msgs := suiteMessages(10)
	e.publish(msgs...)
	committed := make(chan struct{}, len(msgs))
	p := e.processor(suiteEffect)
	p.after = func(ctx context.Context, _ *consumer.Message, err error) error {
		if err != nil {
			return err
		}
		tell(committed)
		<-ctx.Done()
		return &consumer.RetryError{Err: ctx.Err(), Held: true}
	}
	dying := e.run(p, 100*time.Millisecond)
	e.awaits("a commit", committed)
	dying.stop()
	if n := len(events.named("acked")); n != 0 {
		e.Errorf("%d acknowledgements are reported of messages whose answer was not nil", n)
	}
	e.publish(suiteMessage("fails at first", "", "x"))
	var failed atomic.Int32
	r := e.run(e.processor(func(ctx context.Context, tx *deduptest.Tx, msg *consumer.Message) error {
		if msg.Headers[idHeader] == "fails at first" && failed.Add(1) <= 2 {
			// some adapters keep a message in memory before they defer it
			return errSuiteNotYet
		}
		return suiteEffect(ctx, tx, msg)
	}), longGrace)
	e.consumed()
	r.stop()
	ids, offsets := map[string]bool{}, map[sourcePartition]int64{}
	for _, event := range events.named("acked") {
		if event.System == "" || event.Source == "" {
			e.Errorf("an acknowledgement without system or source: %+v", event)
		}
		if event.Message != nil {
			ids[event.Message.Headers[idHeader]] = true
			continue
		}
		if before, acked := offsets[event.partition()]; acked && event.Offset <= before {
			e.Errorf("partition %v: offset %d was reported after %d", event.partition(), event.Offset, before)
		}
		offsets[event.partition()] = event.Offset
	}
	n := len(ids)
	for _, offset := range offsets { // a new topic begins at 0
		n += int(offset) + 1
	}
	if n != len(msgs)+1 {
		e.Errorf("the acknowledgements of %d messages are reported, want %d", n, len(msgs)+1)
	}
}

func lossReported(e *subscriberEnv) {
	revoker, ok := e.broker.(Revoker)
	if !ok {
		e.Fatal("this Broker is no Revoker: say in Features.DoesNotApply why there can be none")
	}
	events := e.trace()
	msgs := suiteMessages(3)
	running, held := make(chan struct{}, len(msgs)), make(chan struct{})
	release := sync.OnceFunc(func() { close(held) })
	defer release()
	loser := e.processor(suiteEffect)
	var revoked atomic.Bool
	loser.before = func(ctx context.Context, _ *consumer.Message) error {
		if revoked.Load() { // it may get its message again
			return nil
		}
		tell(running)
		<-ctx.Done()
		return &consumer.RetryError{Err: ctx.Err(), Held: true}
	}
	e.publish(msgs...)
	e.run(loser, longGrace)
	e.awaits("the handler", running)
	if n := len(events.named("lost")); n != 0 {
		e.Errorf("%d losses are reported before there was one", n)
	}
	revoked.Store(true)
	if err := revoker.Revoke(e.Context()); err != nil {
		e.Fatal(err)
	}
	owner := e.processor(suiteEffect)
	owner.before = func(context.Context, *consumer.Message) error {
		<-held
		return nil
	}
	e.run(owner, longGrace)
	events.await(e, "lost", 1)
	release()
	for _, event := range events.named("lost") {
		if event.Messages < 1 || event.Err == nil || event.System == "" || event.Source == "" {
			e.Errorf("a loss without number, reason, system or source: %+v", event)
		}
	}
	e.consumed()
	e.effects(suiteIDs(msgs)...)
	e.parked()
}

func assignmentsReported(e *subscriberEnv) {
	events := e.trace()
	msgs := suiteMessages(20)
	p := e.processor(suiteEffect)
	p.before = func(context.Context, *consumer.Message) error {
		if len(events.named("assigned")) == 0 {
			e.Error("a message was delivered before any partition was assigned")
		}
		return nil
	}
	e.publish(msgs...)
	first := e.run(p, longGrace)
	e.consumed()
	second := e.run(e.processor(suiteEffect), longGrace)
	e.eventually(func() error {
		members := map[string]bool{}
		for _, event := range events.named("assigned") {
			members[event.Member] = true
		}
		if len(members) < 2 {
			return errors.New("the second subscriber has no partition")
		}
		return nil
	})
	first.stop()
	second.stop()
	type assignment struct {
		sourcePartition
		generation int32
		member     string
	}
	held := map[assignment]bool{}
	holders := map[sourcePartition]int{}
	for _, event := range events.named("assigned", "revoked", "acked") {
		a := assignment{event.partition(), event.Generation, event.Member}
		switch event.name {
		case "assigned":
			held[a] = true
			holders[a.sourcePartition]++
		case "revoked":
			if !held[a] {
				e.Errorf("the end of an assignment that is not reported: %+v", a)
			}
			delete(held, a)
			holders[a.sourcePartition]--
		case "acked":
			if holders[a.sourcePartition] == 0 {
				e.Errorf("offset %d of %v was reported while nobody had the partition", event.Offset, a.sourcePartition)
			}
		}
	}
	for a := range held {
		e.Errorf("the end of %+v is not reported", a)
	}
}

func gapReported(e *subscriberEnv) {
	trimmer, ok := e.broker.(Trimmer)
	if !ok {
		e.Fatal("this Broker is no Trimmer: say in Features.DoesNotApply why it deletes nothing")
	}
	events := e.trace()
	before := suiteMessages(10)
	e.publish(before...)
	r := e.run(e.processor(suiteEffect), longGrace)
	e.consumed()
	r.stop()
	e.publish(suiteMessage("deleted", "", "x"))
	if err := trimmer.Trim(e.Context()); err != nil {
		e.Fatal(err)
	}
	if n := len(events.named("gap")); n != 0 {
		e.Errorf("%d gaps are reported before there was one", n)
	}
	r = e.run(e.processor(suiteEffect), longGrace)
	e.awaits("the end of Run", r.done)
	if r.err == nil {
		e.Error("Run = nil although the broker has deleted a message that was not handled")
	}
	gaps := events.named("gap")
	if len(gaps) != 1 || gaps[0].Err == nil || gaps[0].System == "" || gaps[0].Source == "" {
		e.Errorf("reported are the gaps %+v, want one with its source and error", gaps)
	}
	e.effects(suiteIDs(before)...)
}
