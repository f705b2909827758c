// Package provoke makes a Telemetry export each of its metrics, for the tests of names, rules and dashboards.
package provoke

import (
	"context"
	"errors"
	"time"

	"github.com/txonce/txonce/adapters/telemetry"
	"github.com/txonce/txonce/consumer"
	consumerdriver "github.com/txonce/txonce/consumer/driver"
	"github.com/txonce/txonce/consumer/ops"
	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/observe"
	"github.com/txonce/txonce/outbox"
	"github.com/txonce/txonce/outbox/driver"
	"github.com/txonce/txonce/outbox/relay"
)

// Status is an ops.StatusReader with one of everything.
type Status struct{}

// Status returns a status with one of everything.
func (Status) Status(context.Context) (ops.Status, error) {
	now := time.Now()
	s := ops.Status{
		Now: now,
		Consumers: []ops.ConsumerStatus{{
			Name: "billing",
			Windows: []ops.Window{
				{Window: 15 * 24 * time.Hour, FirstRun: now.Add(-time.Hour), UsedUntil: now.Add(time.Hour)},
				{Window: 8 * 24 * time.Hour, FirstRun: now.Add(-100 * time.Hour), UsedUntil: now.Add(-time.Hour)},
			},
			Letters: []ops.LetterCount{{Cause: observe.CauseExhausted, Count: 3}},
		}},
		Sweep:  ops.SweepStatus{LastPass: now.Add(-time.Minute), Lag: time.Minute},
		Outbox: outbox.Stats{Now: now},
	}
	driver.Count(&s.Outbox, "charges", driver.StatePending, 7, now.Add(-90*time.Second), 0, "")
	driver.Count(&s.Outbox, "charges", driver.StateParked, 2, now.Add(-time.Hour), 0, "")
	return s, nil
}

// Config completes cfg so that each gauge has a value.
func Config(cfg telemetry.Config) telemetry.Config {
	cfg.System, cfg.Status = "kafka", Status{}
	cfg.Pools = map[string]func() (int, int){"main": func() (int, int) { return 3, 10 }}
	return cfg
}

// Everything reports each word once for a consumer "billing" of the topic "orders", and each event of a relay, a
// sweeper and a subscriber.
func Everything(ctx context.Context, t *telemetry.Telemetry) {
	hooks := t.Consumer(telemetry.ConsumerConfig{Name: "billing", Topics: []string{"orders"}, Redelivery: 14 * 24 * time.Hour})
	began := time.Now().Add(-10 * time.Millisecond)
	for _, outcome := range observe.Outcomes() {
		for _, cause := range append([]observe.Cause{""}, observe.Causes()...) {
			Pass(ctx, hooks, consumer.MessageOutcome{Outcome: outcome, Cause: cause})
		}
	}
	for _, result := range observe.Results() {
		for _, ran := range []int{0, 1} {
			d := &consumer.Delivery{Consumer: "billing", Messages: []*consumer.Message{{Topic: "orders"}}, Began: began}
			hooks.Attempt(ctx, d, consumer.Attempt{
				Messages: 1, Ran: ran, Retry: ran == 0, Result: result, Began: began, Claim: time.Millisecond,
				Took: 3 * time.Millisecond,
			})
			hooks.Attempt(ctx, d, consumer.Attempt{
				Messages: 1, Result: result, Cause: observe.CauseInFlight,
				Began: began, Took: time.Second,
			})
		}
	}
	pause := observe.Pause{Name: "billing", Cause: observe.CauseDatabase}
	hooks.Paused(ctx, pause)
	hooks.Resumed(ctx, pause)
	hooks.WentBack(ctx, observe.Loss{Name: "billing"})

	outgoing := t.Relay("billing")
	for _, err := range []error{
		nil, errors.New("no"), outbox.Permanent(errors.New("no")), &outbox.TopicError{Err: errors.New("no")},
		context.Canceled,
	} {
		p := &relay.Publishing{Relay: "billing", Messages: []outbox.Message{{ID: "1", Topic: "charges"}}, Began: began}
		published := ctx
		if outgoing.Start != nil {
			published = outgoing.Start(ctx, p)
		}
		outgoing.Published(published, p, []error{err})
	}
	outgoing.Settled(ctx, []relay.Settlement{{
		Message: &outbox.Stored{Message: outbox.Message{Topic: "charges"}, Enqueued: began}, Outcome: observe.Processed,
	}})
	for _, kind := range []relay.LeaseKind{relay.LeaseTaken, relay.LeaseRenewed, relay.LeaseLost, relay.LeaseStale} {
		outgoing.Lease(ctx, relay.LeaseEvent{Relay: "billing", Kind: kind})
	}

	source := t.Subscriber("kafka", "orders")
	e := consumerdriver.SourceEvent{System: "kafka", Source: "orders"}
	for _, hook := range []func(context.Context, consumerdriver.SourceEvent){
		source.Assigned, source.Revoked,
		source.Gap, source.WentBack, source.Returned, source.Lost,
	} {
		hook(ctx, e)
	}
	if source.Acked != nil { // with Config.AckSpans
		e.Partition, e.Offset = 3, 1042
		source.Acked(ctx, e)
		source.Acked(ctx, consumerdriver.SourceEvent{System: "aws_sqs", Source: "orders", Message: &consumer.Message{Position: "1"}, Began: began})
	}
	HTTP(ctx, t)
	t.Sweeper().Swept(ctx, dedup.SweepEvent{Result: dedup.SweepResult{Keys: 5}})
	t.Audited("billing", telemetry.Audit{Checked: 1000, Lost: 1, Doubled: 1, Orphaned: 1, Repeated: 1})
}

// Pass reports one pass of the consumer "billing" over one message of the topic "orders".
func Pass(ctx context.Context, hooks *consumer.Trace, o consumer.MessageOutcome) {
	d := &consumer.Delivery{
		Consumer: "billing", Messages: []*consumer.Message{{Topic: "orders", Attempt: 1}},
		Began: time.Now(),
	}
	if hooks.Start != nil {
		ctx = hooks.Start(ctx, d)
	}
	hooks.Done(ctx, d, []consumer.MessageOutcome{o})
}
