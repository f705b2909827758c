package driver

import (
	"context"
	"time"

	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/internal/hooks"
	"github.com/txonce/txonce/observe"
)

// SourceTrace has hooks for what happens between a Subscriber and its broker. The Subscribers of all brokers take one.
// Nil hooks are not called. Hooks run on several goroutines at a time, never under a lock: they must be quick and safe
// for concurrent use. A panic of a hook is logged and has no other effect.
type SourceTrace struct {
	// messages may come from now on; called again after each new connection
	Subscribed   func(ctx context.Context, e SourceEvent)
	Unsubscribed func(ctx context.Context, e SourceEvent) // Run ends; Err says why, if something went wrong

	Assigned func(ctx context.Context, e SourceEvent) // Kafka: a partition, before its first message is delivered
	Revoked  func(ctx context.Context, e SourceEvent) // Kafka: nothing more of the partition is delivered or marked
	// Kafka: the broker has deleted messages that were not handled; Err says which
	Gap func(ctx context.Context, e SourceEvent)
	// Kafka: the database has lost commits, and messages from Offset on, about Messages of them, are delivered again;
	// Err says why
	WentBack func(ctx context.Context, e SourceEvent)

	Received func(ctx context.Context, e SourceEvent) // SQS: Message is about to be handled
	// Message is handled and does not come again. Kafka: those up to Offset, soon committed
	Acked func(ctx context.Context, e SourceEvent)
	// SQS, RabbitMQ: the broker has confirmed that Message comes again after After
	Returned func(ctx context.Context, e SourceEvent)
	// SQS, RabbitMQ: this process lost the messages, whose number is Messages; the broker delivers them again
	Lost func(ctx context.Context, e SourceEvent)

	Paused  func(ctx context.Context, p observe.Pause) // the broker fails; Cause is observe.CauseBroker
	Resumed func(ctx context.Context, p observe.Pause)
}

// SourceEvent is the argument of the hooks of a SourceTrace. Fields that a hook's comment does not name may be empty.
type SourceEvent struct {
	System string // as OpenTelemetry names it: "kafka", "aws_sqs", "rabbitmq"
	Source string // the queue; the topic of Assigned, Revoked, Gap, WentBack and Acked of Kafka, otherwise its group

	Partition  int32 // this field and the next three are set for Kafka only
	Offset     int64
	Generation int32  // of the group; each rebalance begins a new one
	Member     string // the Subscriber's member ID

	Message  *consumer.Message // of Received, Acked and Returned, and of Lost if it is one message; nil with Kafka
	Messages int               // of Lost: how many
	// of Acked with SQS and RabbitMQ: when the request began. Kafka's offsets are committed in the background
	Began time.Time
	After time.Duration
	Err   error
}

// Then returns a SourceTrace that calls the hooks of t and then those of u. Both may be nil. A panic of one hook does
// not keep the other from being called.
func (t *SourceTrace) Then(u *SourceTrace) *SourceTrace {
	if t == nil {
		t = &SourceTrace{}
	}
	both := *t
	if u == nil {
		return &both
	}
	second := u.hooks()
	for i, hook := range both.hooks() {
		*hook = hooks.Then(*hook, *second[i])
	}
	both.Paused = hooks.Then(t.Paused, u.Paused)
	both.Resumed = hooks.Then(t.Resumed, u.Resumed)
	return &both
}

func (t *SourceTrace) hooks() []*func(context.Context, SourceEvent) {
	return []*func(context.Context, SourceEvent){
		&t.Subscribed, &t.Unsubscribed, &t.Assigned, &t.Revoked, &t.Gap, &t.WentBack, &t.Received, &t.Acked, &t.Returned, &t.Lost,
	}
}
