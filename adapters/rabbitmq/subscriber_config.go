package rabbitmq

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/consumer/driver"
	"github.com/txonce/txonce/internal/deliver"
	"github.com/txonce/txonce/internal/risks"
	"github.com/txonce/txonce/internal/usercode"
)

// SubscriberConfig configures a Subscriber.
type SubscriberConfig struct {
	// Dial opens connections; see [Dial]. The Subscriber has a connection of its own, opens another when that is lost,
	// and opens a second one for the copies of messages to be retried: a server that is short of memory stops reading
	// from connections that publish, so it would not read their acknowledgements either. Required.
	Dial Dialer

	// Queue is the name of the queue. Required.
	Queue string

	// Spec describes Queue. A Subscriber whose user may configure Queue also reads the queue's arguments, and they win
	// where the two differ; see QueueSpec.
	//
	// Defaults to a durable classic queue without limits.
	Spec QueueSpec

	// Declare makes Run declare Queue as Spec says, with its bindings. If the queue exists, the server compares it with
	// Spec.
	//
	// Defaults to false: the queue must exist.
	Declare bool

	// Processor handles the messages: a consumer.Consumer. A driver.BatchProcessor gets batches, a driver.Starter is
	// started by Run, and the window of a driver.Windowed is compared with Spec.MessageTTL. Required.
	Processor consumer.Processor

	// Ordered makes the messages of one ordering key be handled in the order of the queue, one after the other: a
	// message to be retried waits in memory, and the later messages of its key wait behind it. Only one process at a
	// time may then receive from the queue, so Ordered requires Spec.SingleActiveConsumer.
	//
	// Defaults to false: no order, and messages to be retried wait in the server.
	Ordered bool

	// Concurrency is how many batches are handled at once. Each needs a connection to the database.
	//
	// Defaults to 4.
	Concurrency int

	// MaxBatch is the maximum number of messages that a BatchProcessor gets at once. A batch should be done well within
	// Grace. consumer.Config.MaxPerTransaction limits how many of them share a transaction.
	//
	// Defaults to 100.
	MaxBatch int

	// MaxBatchBytes is the maximum sum of the bodies' bytes in a batch, unless its first message alone is larger.
	//
	// Defaults to 4 MiB.
	MaxBatchBytes int

	// Prefetch is how many messages the server delivers before the first of them is acknowledged: those being handled,
	// those waiting, and those that wait in memory to be retried.
	//
	// Defaults to Concurrency times MaxBatch, at least 100. The maximum is 65,535.
	Prefetch int

	// ConsumerTimeout is the consumer_timeout of the server or the queue. When a message is not settled within that
	// time, the server closes the channel and delivers all its messages again. So a message whose handler takes longer
	// than four fifths of this goes back to the queue alone before that, while its handler goes on: the next delivery
	// is a duplicate, or waits. With Ordered it cannot go back alone, and Run warns of that if this is not the default.
	// A value that is longer than the server's protects nothing.
	//
	// Defaults to 30 minutes, RabbitMQ's default. The minimum is 1 second.
	ConsumerTimeout time.Duration

	// Timestamps says how the timestamps of messages are read. AMQP defines seconds, but some publishers write
	// milliseconds: then each message seems to be of a far year and is parked. Messages with a timestamp that is
	// ignored have no Time.
	//
	// Defaults to TimestampsInSeconds.
	Timestamps Timestamps

	// Grace is how long handlers may go on after Run's context ended, before their own contexts are cancelled. It must
	// be shorter than ConsumerTimeout.
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

// Timestamps says how the timestamps of messages are read.
type Timestamps string

// The ways to read timestamps.
const (
	TimestampsInSeconds      Timestamps = "seconds"
	TimestampsInMilliseconds Timestamps = "milliseconds"
	TimestampsIgnored        Timestamps = "ignored"
)

// read returns the time of a message whose timestamp was read in seconds.
func (ts Timestamps) read(seconds time.Time) time.Time {
	switch {
	case ts == TimestampsIgnored:
		return time.Time{}
	case ts == TimestampsInMilliseconds && !seconds.IsZero():
		return time.UnixMilli(seconds.Unix())
	}
	return seconds
}

// Risk names a setting that is refused because it can lose messages or effects, unless AcceptedRisks contains it.
type Risk = risks.Risk

// Risks of a Subscriber.
const (
	// RiskDeliveryLimit accepts a queue with a delivery limit and without a dead letter exchange, with a warning:
	// RabbitMQ drops a message that was delivered that often, even if no handler failed.
	RiskDeliveryLimit Risk = "RiskDeliveryLimit"

	// RiskShortWindow accepts a Processor that forgets keys sooner than Spec.MessageTTL lets messages expire, with a
	// warning. A message that waited for longer is parked as unprovable, if it may have been handled.
	RiskShortWindow Risk = "RiskShortWindow"

	// RiskExpiry accepts a queue with a time to live and without a dead letter exchange, with a warning: RabbitMQ drops
	// a message that was not received in that time, or that was received and goes back to the queue after it.
	RiskExpiry Risk = "RiskExpiry"

	// RiskMaxLength accepts a queue with x-max-length or x-max-length-bytes, without x-overflow reject-publish and
	// without a dead letter exchange, with a warning: RabbitMQ drops messages when the queue is full, also those that
	// were received and go back to it.
	RiskMaxLength Risk = "RiskMaxLength"

	// RiskTemporaryQueue accepts a queue that is auto-delete or not durable or has x-expires, with a warning: RabbitMQ
	// deletes it with its messages when its last consumer ends, when the server restarts, or when it had no consumer
	// for that time.
	RiskTemporaryQueue Risk = "RiskTemporaryQueue"
)

const (
	maxPrefetch        = 65535            // a 16-bit number in AMQP
	rabbitsTimeout     = 30 * time.Minute // RabbitMQ's default of consumer_timeout
	minConsumerTimeout = time.Second
)

// withDefaults returns c with its defaults, or one error that names all fields at fault.
func (c SubscriberConfig) withDefaults() (SubscriberConfig, error) {
	var wrong []error
	refuse := func(format string, args ...any) {
		wrong = append(wrong, fmt.Errorf("rabbitmq: SubscriberConfig."+format, args...))
	}
	if c.Dial == nil {
		refuse("Dial is required; rabbitmq.Dial makes one")
	}
	switch {
	case c.Queue == "":
		refuse("Queue is required")
	case len(c.Queue) > maxShort-retrySuffixRoom:
		refuse("Queue has %d bytes, and its queues for retries have longer names: at most %d", len(c.Queue),
			maxShort-retrySuffixRoom)
	}
	if c.Processor == nil {
		refuse("Processor is required")
	}
	deliver.SetDefault(refuse, "Concurrency", &c.Concurrency, 4)
	deliver.SetDefault(refuse, "MaxBatch", &c.MaxBatch, 100)
	deliver.SetDefault(refuse, "MaxBatchBytes", &c.MaxBatchBytes, 4<<20)
	inWork := c.Concurrency
	if _, batches := c.Processor.(driver.BatchProcessor); batches {
		inWork *= c.MaxBatch
	}
	deliver.SetDefault(refuse, "Prefetch", &c.Prefetch, min(max(inWork, 100), maxPrefetch))
	if c.Prefetch > maxPrefetch {
		refuse("Prefetch is %d; it is at most %d", c.Prefetch, maxPrefetch)
	}
	deliver.SetDefault(refuse, "Grace", &c.Grace, deliver.DefaultGrace)
	c.Timestamps = cmp.Or(c.Timestamps, TimestampsInSeconds)
	if !slices.Contains([]Timestamps{TimestampsInSeconds, TimestampsInMilliseconds, TimestampsIgnored}, c.Timestamps) {
		refuse("Timestamps is %q; want TimestampsInSeconds, TimestampsInMilliseconds or TimestampsIgnored",
			c.Timestamps)
	}
	c.ConsumerTimeout = cmp.Or(c.ConsumerTimeout, rabbitsTimeout)
	if c.ConsumerTimeout < minConsumerTimeout {
		refuse("ConsumerTimeout is %v; it is at least %v", c.ConsumerTimeout, minConsumerTimeout)
	}
	if c.Grace >= c.ConsumerTimeout {
		refuse("Grace is %v, and the server takes messages away after ConsumerTimeout, %v: make Grace shorter, or consumer_timeout longer",
			c.Grace, c.ConsumerTimeout)
	}
	if c.Ordered && !c.Spec.SingleActiveConsumer {
		refuse("Ordered requires Spec.SingleActiveConsumer, the queue's argument x-single-active-consumer: " +
			"two processes that receive from one queue keep no order")
	}
	if err := c.Spec.check(); err != nil {
		refuse("Spec.%w", err)
	}
	if err := c.checkDangers(""); err != nil {
		wrong = append(wrong, err)
	}
	if err := risks.Check(c.AcceptedRisks, RiskDeliveryLimit, RiskShortWindow, RiskExpiry, RiskMaxLength,
		RiskTemporaryQueue); err != nil {
		refuse("%w", err)
	}
	c.Logger = usercode.Logger(c.Logger)
	return c, errors.Join(wrong...)
}
