package awssqs

import (
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/sqs"

	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/consumer/driver"
	"github.com/txonce/txonce/internal/deliver"
	"github.com/txonce/txonce/internal/risks"
	"github.com/txonce/txonce/internal/usercode"
)

// SubscriberConfig configures a Subscriber.
type SubscriberConfig struct {
	// Client is an *sqs.Client. It may be shared, with a Publisher too. It needs sqs:GetQueueAttributes,
	// sqs:ReceiveMessage, sqs:ChangeMessageVisibility and sqs:DeleteMessage on the queue, and sqs:GetQueueUrl where
	// Queue is a name. Required.
	Client API

	// Queue is the URL of the queue, or its name in the Client's account and region. Required.
	Queue string

	// Processor handles the messages: a consumer.Consumer. A driver.BatchProcessor gets batches, a driver.Starter is
	// started by Run, and the window of a driver.Windowed is compared with the queue's retention. If it has a method
	// MaxAttempts() int, its result is compared with the queue's redrive policy; otherwise 3 is, the default of
	// consumer.Config. Required.
	Processor consumer.Processor

	// OrderBy returns the ordering key of a message, which becomes its Message.OrderingKey; empty: no order. ByKey
	// returns the key that the message has. This process handles messages of one key one at a time, in the order of
	// their arrival here. It cannot promise more, because a standard queue delivers in any order, to any process: use a
	// FIFO queue where order matters. A FIFO queue is handled in order per message group, and refuses an OrderBy. When
	// OrderBy panics, its message is Malformed and has no order: the consumer parks it.
	//
	// Defaults to no order.
	OrderBy func(*consumer.Message) string

	// Concurrency is how many batches are handled at once. Each needs a connection to the database.
	//
	// Defaults to 4.
	Concurrency int

	// MaxBatch is the maximum number of messages that a BatchProcessor gets at once. SQS returns at most ten per
	// request; larger batches form while earlier messages are being handled. A batch should be done well within Grace.
	// consumer.Config.MaxPerTransaction limits how many of them share a transaction.
	//
	// Defaults to 100.
	MaxBatch int

	// MaxBatchBytes is the maximum sum of the bytes of bodies and attributes in a batch, unless its first message alone
	// is larger.
	//
	// Defaults to 4 MiB.
	MaxBatchBytes int

	// MaxUnfinished is the maximum number of messages in memory: those being handled, those waiting, and those that
	// wait to be retried. Each costs a tenth of a request per quarter of VisibilityTimeout.
	//
	// Defaults to Concurrency times MaxBatch.
	MaxUnfinished int

	// Receivers is how many requests for messages run at a time while the queue has many messages. One runs while it is
	// empty.
	//
	// Defaults to as many as fill MaxUnfinished together, at most 10.
	Receivers int

	// WaitTime is how long SQS keeps a request waiting while there are no messages: whole seconds, at most 20. It
	// delays the end of Run by at most two seconds. A server that does not notice that a waiting request was cancelled,
	// such as ElasticMQ, may still answer it with a message, which is then delayed by VisibilityTimeout.
	//
	// Defaults to 20 seconds.
	WaitTime time.Duration

	// VisibilityTimeout is how long a message stays with this process after the last heartbeat: whole seconds.
	// Heartbeats are sent every quarter of it until the message is settled, within the 12 hours that SQS allows. A
	// process that dies delays its messages by this time.
	//
	// Defaults to the queue's.
	VisibilityTimeout time.Duration

	// Grace is how long handlers may go on after Run's context ended, before their own contexts are cancelled.
	//
	// Defaults to 30 seconds.
	Grace time.Duration

	// AcceptedRisks lists the settings that are used although they can lose messages or effects. Defaults to nothing.
	AcceptedRisks []Risk

	// Trace has hooks.
	//
	// Defaults to none.
	Trace *driver.SourceTrace

	// Logger gets one line for each event that an operator should know.
	//
	// Defaults to slog.Default().
	Logger *slog.Logger
}

// ByKey returns the key that a message has, see SubscriberConfig.OrderBy.
func ByKey(msg *consumer.Message) string { return msg.OrderingKey }

// Risk names a setting that is refused because it can lose messages or effects, unless AcceptedRisks contains it.
type Risk = risks.Risk

// Risks of a Subscriber.
const (
	// RiskShortWindow accepts a Processor that forgets keys sooner than the queue forgets messages, with a warning. A
	// message that is delivered again after that is parked as unprovable.
	RiskShortWindow Risk = "RiskShortWindow"

	// RiskRedrive accepts a redrive policy whose maxReceiveCount is not above the Processor's MaxAttempts, with a
	// warning: SQS then moves messages to the dead-letter queue that the Processor has neither handled nor given up on.
	RiskRedrive Risk = "RiskRedrive"
)

// MinReceives is the least maxReceiveCount of a redrive policy that a Subscriber accepts without a warning. Whatever
// makes SQS deliver a message again counts towards it: besides failures, which the Processor counts itself, each stop,
// crash and lost answer. A maxReceiveCount that is not above the Processor's MaxAttempts is refused, see RiskRedrive.
const MinReceives = 10

const (
	maxInFlight = 12 * time.Hour   // after a receive; SQS's limit
	maxWait     = 20 * time.Second // of long polling
)

// withDefaults returns c with its defaults, or one error that names all fields at fault.
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
	case !isURL(c.Queue) && !isQueueName(c.Queue):
		refuse("Queue is %q: %s", c.Queue, wantQueue)
	}
	if c.Processor == nil {
		refuse("Processor is required")
	}
	deliver.SetDefault(refuse, "Concurrency", &c.Concurrency, 4)
	deliver.SetDefault(refuse, "MaxBatch", &c.MaxBatch, 100)
	deliver.SetDefault(refuse, "MaxBatchBytes", &c.MaxBatchBytes, 4<<20)
	deliver.SetDefault(refuse, "MaxUnfinished", &c.MaxUnfinished, c.Concurrency*c.MaxBatch)
	deliver.SetDefault(refuse, "Receivers", &c.Receivers, min((c.MaxUnfinished+maxBatch-1)/maxBatch, 10))
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
	deliver.SetDefault(refuse, "Grace", &c.Grace, deliver.DefaultGrace)
	if err := risks.Check(c.AcceptedRisks, RiskShortWindow, RiskRedrive); err != nil {
		refuse("%w", err)
	}
	c.Logger = usercode.Logger(c.Logger)
	return c, errors.Join(wrong...)
}
