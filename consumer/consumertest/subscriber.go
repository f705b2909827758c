package consumertest

import (
	"context"
	"testing"
	"time"

	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/consumer/driver"
)

// Broker is an empty queue or topic for one test, with one group of subscribers. It may also be a Restarter, a Revoker,
// a Tracer and a Trimmer. Its methods must be safe for concurrent use.
type Broker interface {
	// Publish sends messages in order. It sends only OrderingKey, Payload and Headers of each. If it returns an error,
	// some messages may have been sent, or sent twice.
	Publish(ctx context.Context, msgs ...consumer.Message) error

	// Subscriber returns another subscriber of the group. After the ctx of its Run has ended, its handlers have grace
	// to finish.
	Subscriber(p consumer.Processor, grace time.Duration) (Subscriber, error)

	// Left returns how many of the sent messages are not acknowledged, according to the broker. 0 means that all were
	// consumed.
	Left(ctx context.Context) (int, error)
}

// Subscriber is the receiving side of a broker adapter. Run blocks until ctx ends, then finishes and acknowledges the
// messages that it has begun, and returns nil.
type Subscriber interface {
	Run(ctx context.Context) error
}

// Restarter is a Broker that can be stopped and started again, at the same address and with all its messages.
type Restarter interface {
	// Restart returns when the broker answers again.
	Restart(ctx context.Context) error
}

// Revoker is a Broker that can take messages away from subscribers.
type Revoker interface {
	// Revoke takes the messages that the running subscribers are handling away from them, as a broker does after a
	// timeout, so that it may deliver them to others at once. The subscribers are not notified in any special way.
	Revoke(ctx context.Context) error
}

// Tracer is a Broker whose subscribers take a driver.SourceTrace.
type Tracer interface {
	// Trace sets the trace of the subscribers that Subscriber returns from now on.
	Trace(trace *driver.SourceTrace)
}

// Trimmer is a Broker that can delete messages that were not handled, as Kafka does at the end of a topic's retention.
type Trimmer interface {
	// Trim deletes all messages that were sent.
	Trim(ctx context.Context) error
}

// Features says what a broker and its adapter can do. For a case that does not apply, the suite logs the reason.
type Features struct {
	Ordered        bool // messages of one Key are handled in the order of their sending
	Delay          bool // a message is not delivered again before its RetryError.After has passed
	CountsAttempts bool // Message.Attempt counts on when another subscriber gets the message
	Batch          bool // a driver.BatchProcessor gets several messages at once
	Fenced         bool // a subscriber that has lost a message cannot acknowledge it any more
	// messages are assigned to subscribers by partition, and stay with the broker when they are acknowledged
	Partitions bool

	// DoesNotApply names other cases that cannot exist on this broker, each with the reason.
	DoesNotApply map[string]string
}

// SubscriberHarness is how the suite drives one broker adapter.
type SubscriberHarness struct {
	// New returns an empty queue or topic, and removes it when t ends.
	New func(t *testing.T) Broker

	// Features says what the broker and its adapter can do.
	Features Features

	// Select reports whether a case runs. A case that it leaves out is not in the output. Nil: all cases run.
	Select func(name string) bool

	// Run runs one case c. It may call t.Parallel first, or be synctest.Test. Nil: it calls c.
	Run func(t *testing.T, c func(t *testing.T))
}

// TestSubscriber runs the suite that every broker adapter must pass. Each case is a sub-test with its own Broker, and
// is named after its rule. The handlers run in a consumer.Consumer on a database in memory; several subscribers in one
// case represent several processes. Lost and doubled effects are counted in that database, and the broker is asked
// which messages are acknowledged.
func TestSubscriber(t *testing.T, h SubscriberHarness) {
	for _, c := range subscriberCases {
		if h.Select != nil && !h.Select(c.name) {
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			if reason := h.Features.without(c); reason != "" {
				t.Log("does not apply: " + reason)
				return
			}
			run := func(t *testing.T) { c.run(newSubscriberEnv(t, h.Features, h.New(t))) }
			if h.Run == nil {
				run(t)
				return
			}
			h.Run(t, run)
		})
	}
}

// subscriberCase is one rule.
type subscriberCase struct {
	name string
	run  func(e *subscriberEnv)
	has  func(Features) bool // nil: the case applies to every broker
	why  string              // why the case does not apply if has returns false
}

// without returns why c does not apply, or an empty string if it does.
func (f Features) without(c subscriberCase) string {
	if c.has != nil && !c.has(f) {
		return c.why
	}
	return f.DoesNotApply[c.name]
}

var subscriberCases = []subscriberCase{
	{name: "nil acks", run: nilAcks},
	{name: "an error redelivers", run: errorRedelivers},
	{name: "an ack lost after the commit makes a duplicate, which is suppressed", run: lostAck},
	{name: "a permanent error parks, and the queue moves on", run: permanentParks},
	{name: "bytes that cannot be decoded are parked, and the queue moves on", run: garbageParks},
	{name: "two dead letters of equal bytes are two", run: equalLetters},
	{name: "a panic ends Run, and acknowledges nothing", run: panicEndsRun},
	{name: "a message is the same on redelivery", run: sameOnRedelivery},
	{
		name: "order within a key", run: orderWithinKey,
		has: func(f Features) bool { return f.Ordered }, why: "this broker promises no order",
	},
	{
		name: "a delay is kept", run: delayKept,
		has: func(f Features) bool { return f.Delay }, why: "this broker cannot delay a redelivery",
	},
	{
		name: "attempts count on at another subscriber", run: attemptsCountOn,
		has: func(f Features) bool { return f.CountsAttempts }, why: "this broker does not count deliveries",
	},
	{
		name: "batches are formed of what waits", run: batchesForm,
		has: func(f Features) bool { return f.Batch }, why: "this adapter delivers one message at a time",
	},
	{name: "30 deferrals of one message lose nothing", run: thirtyDeferrals},
	{name: "a stop lets the handler finish", run: stopFinishes},
	{name: "the grace period ends with a cancelled handler", run: graceExpires},
	{name: "a stop in the middle of a batch loses nothing", run: stopMidBatch},
	{name: "a subscriber that lost its message, and the new owner, have one effect", run: revokedWhileHandling},
	{
		name: "an acknowledgement that comes too late changes nothing", run: lateAck,
		has: func(f Features) bool { return f.Fenced },
		why: "this broker accepts it: it removes a message that a new owner is handling, which is not lost",
	},
	{name: "acknowledgements are reported", run: acksReported},
	{
		name: "lost leases are reported", run: lossReported,
		has: func(f Features) bool { return !f.Partitions },
		why: "this broker takes messages away with their partition",
	},
	{
		name: "assignments and their ends are reported", run: assignmentsReported,
		has: func(f Features) bool { return f.Partitions }, why: "this broker assigns no partitions",
	},
	{
		name: "messages that the broker deleted unhandled are reported", run: gapReported,
		has: func(f Features) bool { return f.Partitions },
		why: "this broker keeps messages until they are acknowledged",
	},
	{name: "the broker restarts", run: brokerRestarts},
	{name: "the database is away, and nothing is parked", run: databaseAway},
}
