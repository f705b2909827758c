package awssqs

import (
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/sqs"

	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/internal/risks"
)

// SubscriberConfig says what a Subscriber receives and who handles it.
type SubscriberConfig struct {
	// Client is an *sqs.Client. It may be shared, with a Publisher too. It needs sqs:GetQueueAttributes, sqs:ReceiveMessage,
	// sqs:ChangeMessageVisibility and sqs:DeleteMessage on the queue, and sqs:GetQueueUrl where Queue is a name. Required.
	Client API

	// Queue is the URL of the queue, or its name in the Client's account and region. Required.
	Queue string

	// Processor handles the messages: a consumer.Consumer. As a consumer.BatchProcessor it gets batches, as a consumer.Starter it
	// is started by Run, as a consumer.Windowed it is compared with the queue's retention. If it has a method MaxAttempts() int, that is
	// compared with the queue's redrive policy; if not, consumer.DefaultMaxAttempts is. Required.
	Processor consumer.Processor

	// OrderBy gives the ordering key of a message, and Message.Key becomes that: of two messages with one key this process
	// handles one at a time, the one that it received first before the other. ByKey takes the key that the message has; empty
	// means free. That is all that it can promise, since a standard queue delivers in any order, to any process: use a FIFO
	// queue where order matters. A FIFO queue is handled in order per message group, and refuses an OrderBy. Defaults to
	// no order.
	OrderBy func(*consumer.Message) string

	// Concurrency is how many batches are handled at once. Each takes a connection to the database. Defaults to 4.
	Concurrency int

	// MaxBatch is how many messages a BatchProcessor gets at once, at the most. SQS hands out ten at a time; more come together
	// while earlier ones are being handled. A batch should be done well within Grace. Defaults to 100.
	MaxBatch int

	// MaxBatchBytes is how many bytes of bodies and attributes a batch holds, unless its first message alone is larger.
	// Defaults to 4 MiB.
	MaxBatchBytes int

	// MaxUnfinished is how many messages are held: those being handled, those waiting, and those deferred for a while. Each takes
	// a tenth of a request per quarter of VisibilityTimeout. Defaults to Concurrency times MaxBatch.
	MaxUnfinished int

	// Receivers is how many requests for messages run at once while the queue is full. One runs while it is empty. Defaults to
	// what fills MaxUnfinished at once, 10 at the most.
	Receivers int

	// WaitTime is how long SQS keeps a request for messages waiting while there are none; whole seconds, 20 at the most. It delays
	// the end of Run by two seconds at the most. A server that does not notice that a waiting request was given up, as ElasticMQ, may
	// still answer it with a message, which is then delayed by VisibilityTimeout. Defaults to 20 seconds.
	WaitTime time.Duration

	// VisibilityTimeout is how long a message stays with this process after the last sign of life. It is renewed every quarter, for
	// as long as the message is held, up to the 12 hours that SQS allows. A process that dies delays its messages by that much.
	// Whole seconds. Defaults to the queue's.
	VisibilityTimeout time.Duration

	// Grace is how long running handlers may take when Run's context has ended, before their own contexts are cancelled.
	// Defaults to 30 seconds.
	Grace time.Duration

	// AcceptedRisks lists the settings that are used although they can lose messages or effects. Defaults to nothing.
	AcceptedRisks []Risk

	// Trace is told what becomes of messages. Defaults to nobody.
	Trace *Trace

	// Logger gets one line for whatever a person should know. Defaults to slog.Default().
	Logger *slog.Logger
}

// ByKey orders by the key that a message has, see SubscriberConfig.OrderBy.
func ByKey(msg *consumer.Message) string { return msg.Key }

// Risk names a setting that is refused because it can lose messages or effects, unless AcceptedRisks contains it.
type Risk = risks.Risk

// Risks of a Subscriber.
const (
	// RiskShortWindow accepts a Processor that forgets keys sooner than the queue forgets messages, with a warning. A message that
	// is delivered again after that is parked as unprovable.
	RiskShortWindow Risk = "RiskShortWindow"

	// RiskRedrive accepts a redrive policy whose maxReceiveCount is not above the Processor's MaxAttempts, with a warning: SQS then moves
	// messages to the dead-letter queue that the Processor has neither handled nor given up on.
	RiskRedrive Risk = "RiskRedrive"
)

// MinReceives is the least maxReceiveCount of a redrive policy that a Subscriber accepts without a warning. Whatever makes SQS deliver a
// message again counts towards it: besides failures, which the Processor counts itself, each stop, crash and lost answer. A
// maxReceiveCount that is not above the Processor's MaxAttempts is refused, see RiskRedrive.
const MinReceives = 10

// Trace is told what becomes of a Subscriber's messages. Nil hooks are left out. Hooks run on several goroutines at a time: they
// must be quick and safe for concurrent use.
type Trace struct {
	Received func(*consumer.Message)                // before it is handled
	Deleted  func(*consumer.Message)                // it is handled, and SQS has confirmed its deletion
	Returned func(*consumer.Message, time.Duration) // SQS has confirmed that it will deliver it again, no sooner than this from now
	Lost     func(*consumer.Message)                // SQS has given it to others, or may have: its handler is cancelled
}

const (
	maxInFlight = 12 * time.Hour   // from a receive on, as SQS has it
	maxWait     = 20 * time.Second // of long polling
)

// withDefaults returns c complete, or what is wrong with it, all of it at once.
func (c SubscriberConfig) withDefaults() (SubscriberConfig, error) {
	var wrong []error
	refuse := func(format string, args ...any) {
		wrong = append(wrong, fmt.Errorf("awssqs: SubscriberConfig."+format, args...))
	}
	if client, isClient := c.Client.(*sqs.Client); c.Client == nil || isClient && client == nil {
		refuse("Client is required")
	}
	switch {
	case c.Queue == "":
		refuse("Queue is required")
	case !isURL(c.Queue) && (!queueName.MatchString(c.Queue) || len(c.Queue) > 80):
		refuse("Queue is %q, which is neither a URL nor the name of a queue: at most 80 of a-z A-Z 0-9 - _, with .fifo at the end for a FIFO queue", c.Queue)
	}
	if c.Processor == nil {
		refuse("Processor is required")
	}
	for _, field := range []struct {
		name     string
		value    *int
		standard int
	}{
		{"Concurrency", &c.Concurrency, 4},
		{"MaxBatch", &c.MaxBatch, 100},
		{"MaxBatchBytes", &c.MaxBatchBytes, 4 << 20},
		{"MaxUnfinished", &c.MaxUnfinished, 0},
		{"Receivers", &c.Receivers, 0},
	} {
		if *field.value < 0 {
			refuse("%s is %d; it must not be negative", field.name, *field.value)
		}
		if *field.value == 0 {
			*field.value = field.standard
		}
	}
	for _, field := range []struct {
		name        string
		value       *time.Duration
		least, most time.Duration
		standard    time.Duration
	}{
		{"WaitTime", &c.WaitTime, time.Second, maxWait, maxWait},
		{"VisibilityTimeout", &c.VisibilityTimeout, time.Second, maxInFlight, 0},
	} {
		if v := *field.value; v == 0 {
			*field.value = field.standard
		} else if v < field.least || v > field.most || v%time.Second != 0 {
			refuse("%s is %v; SQS takes whole seconds, %v to %v", field.name, v, field.least, field.most)
		}
	}
	if c.Grace < 0 {
		refuse("Grace is %v; it must not be negative", c.Grace)
	}
	if err := risks.Check(c.AcceptedRisks, RiskShortWindow, RiskRedrive); err != nil {
		refuse("%w", err)
	}
	if len(wrong) > 0 {
		return c, errors.Join(wrong...)
	}
	if c.MaxUnfinished == 0 {
		c.MaxUnfinished = c.Concurrency * c.MaxBatch
	}
	if c.Receivers == 0 {
		c.Receivers = min((c.MaxUnfinished+maxBatch-1)/maxBatch, 10)
	}
	if c.Grace == 0 {
		c.Grace = 30 * time.Second
	}
	if c.Trace == nil {
		c.Trace = &Trace{}
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	return c, nil
}
