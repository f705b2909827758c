package consumertest

import (
	"context"
	"testing"
	"time"

	"github.com/txonce/txonce/consumer"
)

// Broker is what the suite needs of a broker: a queue or topic that is empty, of the test's own, and one group of
// subscribers to it. It may also be a Restarter and a Revoker.
type Broker interface {
	// Publish sends messages, in order. Of each it keeps Key, Payload and Headers, and nothing else. It may send one
	// twice when it reports an error.
	Publish(ctx context.Context, msgs ...consumer.Message) error

	// Subscriber returns one more subscriber of the group. Its handlers have grace to finish when its Run is to end.
	Subscriber(p consumer.Processor, grace time.Duration) (Subscriber, error)

	// Left is how many of the messages that were sent are not acknowledged, as the broker itself remembers it. 0 means
	// that everything was consumed.
	Left(ctx context.Context) (int, error)
}

// Subscriber is a broker adapter's receiving side. Run blocks until ctx ends, then finishes what it has begun,
// acknowledges it and returns nil.
type Subscriber interface {
	Run(ctx context.Context) error
}

// Restarter is a Broker that can be stopped and started again, at the same address and with all its messages.
type Restarter interface {
	// Restart returns when the broker answers again.
	Restart(ctx context.Context) error
}

// Revoker is a Broker that can take away what subscribers hold.
type Revoker interface {
	// Revoke takes from all subscribers that run now what they are handling, as if they had not been heard of for too
	// long: the broker may deliver it to others at once. The subscribers are not told in any special way.
	Revoke(ctx context.Context) error
}

// Features says what a broker and its adapter can do. It is data: a case that cannot exist is listed in the output with
// its reason, and never skipped.
type Features struct {
	Ordered        bool // messages of one Key are handled in the order in which they were sent
	Delay          bool // a message is not delivered again before its RetryError.After has passed
	CountsAttempts bool // Message.Attempt counts on when another subscriber gets the message
	Batch          bool // a consumer.BatchProcessor gets several messages at once
	Fenced         bool // a subscriber that has lost a message cannot acknowledge it any more

	// DoesNotApply says of each other case that cannot exist on this broker why.
	DoesNotApply map[string]string
}

// SubscriberHarness is how the suite drives one broker adapter.
type SubscriberHarness struct {
	// New returns an empty queue or topic, and removes it when t ends.
	New func(t *testing.T) Broker

	// Features says what the broker and its adapter can do.
	Features Features

	// Select says whether a case runs. Those it leaves out are not mentioned in the output. Nil: all run.
	Select func(name string) bool

	// Run runs one case: it may call t.Parallel first, or be synctest.Test. Defaults to calling c.
	Run func(t *testing.T, c func(t *testing.T))
}

// TestSubscriber runs the suite that every broker adapter must pass. Each case is a sub-test with a Broker of its own,
// named after the rule that it shows. The handlers run in a consumer.Consumer on an in-memory database; several
// subscribers of one case are several nodes on it. Lost and doubled effects are counted in that database, and the broker
// says what is acknowledged: an adapter cannot talk its way out.
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
	has  func(Features) bool // nil: does not depend on any
	why  string              // it does not apply without
}

// without returns why c does not apply; empty if it does.
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
		has: func(f Features) bool { return f.Fenced }, why: "this broker accepts it: what a new owner is handling is gone then, and not lost",
	},
	{name: "the broker restarts", run: brokerRestarts},
	{name: "the database is away, and nothing is parked", run: databaseAway},
}
