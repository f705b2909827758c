package consumertest

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/dedup/deduptest"
)

// The cases about subscribers, brokers and databases that stop.

func stopFinishes(e *subscriberEnv) {
	running, finish := make(chan struct{}, 10), make(chan struct{})
	var cancelled atomic.Bool
	p := e.processor(func(ctx context.Context, tx *deduptest.Tx, msg *consumer.Message) error {
		tell(running)
		<-finish
		cancelled.Store(ctx.Err() != nil)
		return suiteEffect(ctx, tx, msg)
	})
	e.publish(suiteMessage("x", "", "x"))
	r := e.run(p, longGrace)
	e.awaits("the handler", running)
	r.cancel()
	<-time.After(200 * time.Millisecond)
	select {
	case <-r.done:
		e.Fatalf("Run = %v while a handler was running", r.err)
	default:
	}
	close(finish)
	r.stop()
	if cancelled.Load() {
		e.Error("the handler's context was cancelled within the grace period")
	}
	e.effects("x")
	e.consumed() // no other subscriber runs
}

func graceExpires(e *subscriberEnv) {
	const grace = 500 * time.Millisecond
	running := make(chan struct{}, 10)
	p := e.processor(func(ctx context.Context, tx *deduptest.Tx, msg *consumer.Message) error {
		tell(running)
		<-ctx.Done()
		return ctx.Err()
	})
	msgs := suiteMessages(3)
	e.publish(msgs...)
	r := e.run(p, grace)
	e.awaits("the handler", running)
	began := time.Now()
	r.stop()
	if took := time.Since(began); took < grace-20*time.Millisecond {
		e.Errorf("the handler was cancelled after %v; its grace is %v", took, grace)
	}
	e.parked()
	if n, err := e.broker.Left(e.Context()); err != nil || n != len(msgs) {
		e.Errorf("%d messages are not acknowledged (%v), want %d", n, err, len(msgs))
	}
	then := e.processor(suiteEffect)
	e.run(then, longGrace)
	e.consumed()
	e.effects(suiteIDs(msgs)...)
	for _, m := range then.of("0") {
		if m.Attempt > 1 && !e.features.CountsAttempts {
			e.Errorf("a cancelled attempt was counted: Attempt %d", m.Attempt)
		}
	}
}

func stopMidBatch(e *subscriberEnv) {
	msgs := suiteMessages(20)
	var handled atomic.Int32
	stuck := make(chan struct{}, len(msgs))
	p := e.processor(func(ctx context.Context, tx *deduptest.Tx, msg *consumer.Message) error {
		if handled.Add(1) > 7 {
			tell(stuck)
			<-ctx.Done()
			return ctx.Err()
		}
		return suiteEffect(ctx, tx, msg)
	})
	e.publish(msgs...)
	r := e.run(p, 100*time.Millisecond)
	e.awaits("the handler in the middle of the batch", stuck)
	r.stop()
	e.run(e.processor(suiteEffect), longGrace)
	e.consumed()
	e.effects(suiteIDs(msgs)...)
	e.parked()
}

func revokedWhileHandling(e *subscriberEnv) {
	revoker, ok := e.broker.(Revoker)
	if !ok {
		e.Fatal("this Broker is no Revoker: say in Features.DoesNotApply why there can be none")
	}
	msgs := suiteMessages(3)
	running, finish := make(chan struct{}, len(msgs)), make(chan struct{})
	p := e.processor(func(ctx context.Context, tx *deduptest.Tx, msg *consumer.Message) error {
		tell(running)
		<-finish
		return suiteEffect(ctx, tx, msg)
	})
	e.publish(msgs...)
	e.run(p, longGrace)
	e.awaits("the handler", running)
	if err := revoker.Revoke(e.Context()); err != nil {
		e.Fatal(err)
	}
	other := e.processor(suiteEffect)
	e.run(other, longGrace)
	e.eventually(func() error {
		if n, _ := other.count(); n == 0 {
			return fmt.Errorf("what a subscriber lost while handling it is not delivered to the other")
		}
		return nil
	})
	close(finish)
	e.consumed()
	e.effects(suiteIDs(msgs)...)
	e.parked()
}

func lateAck(e *subscriberEnv) {
	revoker, ok := e.broker.(Revoker)
	if !ok {
		e.Fatal("this Broker is no Revoker: say in Features.DoesNotApply why there can be none")
	}
	running, finish, answered := make(chan struct{}, 1), make(chan struct{}), make(chan struct{}, 1)
	p := e.processor(func(ctx context.Context, tx *deduptest.Tx, msg *consumer.Message) error {
		tell(running)
		<-finish
		return suiteEffect(ctx, tx, msg)
	})
	p.after = func(_ context.Context, _ *consumer.Message, err error) error {
		tell(answered)
		return err
	}
	e.publish(suiteMessages(1)...)
	e.run(p, longGrace)
	e.awaits("the handler", running)
	if err := revoker.Revoke(e.Context()); err != nil {
		e.Fatal(err)
	}
	owns, release := make(chan struct{}, 100), make(chan struct{})
	owner := e.processor(suiteEffect)
	owner.before = func(context.Context, *consumer.Message) error {
		tell(owns)
		<-release
		return nil
	}
	e.run(owner, longGrace)
	e.awaits("the new owner", owns)
	close(finish)
	e.awaits("the answer of the old one", answered)
	for range 10 { // the acknowledgement may still be on its way
		<-time.After(50 * time.Millisecond)
		if n, err := e.broker.Left(e.Context()); err != nil || n != 1 {
			e.Errorf("%d messages are left, %v: want the one that its new owner is handling", n, err)
			break
		}
	}
	close(release)
	e.consumed()
	e.effects("0")
	e.parked()
}

func brokerRestarts(e *subscriberEnv) {
	restarter, ok := e.broker.(Restarter)
	if !ok {
		e.Fatal("this Broker is no Restarter: say in Features.DoesNotApply why there can be none")
	}
	msgs := suiteMessages(30)
	r := e.run(e.processor(suiteEffect), longGrace)
	e.publish(msgs[:10]...)
	e.eventually(func() error {
		if n := e.db.Count("9"); n == 0 {
			return fmt.Errorf("nothing was handled before the restart")
		}
		return nil
	})
	e.publish(msgs[10:20]...)
	if err := restarter.Restart(e.Context()); err != nil {
		e.Fatal(err)
	}
	e.publish(msgs[20:]...)
	e.consumed()
	r.runs()
	e.effects(suiteIDs(msgs)...)
	e.parked()
}

func databaseAway(e *subscriberEnv) {
	const away = 2 * time.Second
	msgs := suiteMessages(40)
	p := e.processor(suiteEffect)
	r := e.run(p, longGrace)
	e.publish(msgs[0])
	e.consumed()
	before, _ := p.count()
	stopped := time.Now()
	e.db.Stop()
	e.publish(msgs[1:]...)
	e.eventually(func() error {
		if n, _ := p.count(); n == before {
			return errors.New("nothing is delivered while the database is away")
		}
		return nil
	})
	<-time.After(away)
	e.db.Start()
	tries, _ := p.count()
	took := time.Since(stopped)
	e.consumed()
	r.runs()
	e.effects(suiteIDs(msgs)...)
	e.parked()
	if most := int(50 * took.Seconds() * float64(len(msgs))); tries > most {
		e.Errorf("%d deliveries while the database was away for %v; want no more than %d, 50 a second of each message",
			tries, took, most)
	}
	for _, m := range msgs {
		for _, d := range p.of(m.Headers[idHeader]) {
			if d.Attempt != 1 {
				e.Errorf("message %s: the database's fault was counted as an attempt: Attempt %d", m.Headers[idHeader],
					d.Attempt)
			}
		}
	}
}
