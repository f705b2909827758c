package rabbitmq

import (
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/internal/risks"
)

// SubscriberConfig says what a Subscriber receives and who handles it.
type SubscriberConfig struct {
	// Dial connects; see [Dial]. The Subscriber has a connection of its own, opens another when it is lost, and a second one for
	// the copies of messages that are to be retried: a server that is short of memory stops reading from connections that publish,
	// and so from their acknowledgements. Required.
	Dial Dialer

	// Queue is where messages are received from. Required.
	Queue string

	// Spec says what Queue is like. AMQP does not tell that, and much depends on it. Defaults to a durable classic queue without
	// limits.
	Spec QueueSpec

	// Declare has Run make Queue as Spec says, with its bindings, if it does not exist. If it exists the server compares it
	// with Spec. Defaults to false: it must exist, and Spec is believed.
	Declare bool

	// Processor handles the messages: a consumer.Consumer. As a consumer.BatchProcessor it gets batches, as a
	// consumer.Starter it is started by Run, as a consumer.Windowed it is compared with Spec.MessageTTL. Required.
	Processor consumer.Processor

	// Ordered has the messages of one Key handled in the order of the queue, one after the other: what is to be retried
	// waits in memory, and what follows it with its key waits behind it. Only one process may then receive from the queue at a
	// time, the others stand by, so it requires Spec.SingleActiveConsumer. Defaults to false: no order, and retries wait in the
	// server.
	Ordered bool

	// Concurrency is how many batches are handled at once. Each takes a connection to the database. Defaults to 4.
	Concurrency int

	// MaxBatch is how many messages a BatchProcessor gets at once, at the most. A batch should be done well within Grace.
	// Defaults to 100.
	MaxBatch int

	// MaxBatchBytes is how many bytes of bodies a batch holds, unless its first message alone is larger. Defaults to 4 MiB.
	MaxBatchBytes int

	// Prefetch is how many messages the server delivers before the first of them is acknowledged: those being handled, those
	// waiting, and those that wait in memory to be retried. Defaults to Concurrency times MaxBatch, 100 at the least.
	Prefetch int

	// ConsumerTimeout is the server's consumer_timeout, or the queue's: it closes a channel when a message is not settled within
	// that time, and delivers again all that the channel held. Defaults to 30 minutes, which is RabbitMQ's.
	ConsumerTimeout time.Duration

	// Grace is how long running handlers may take when Run's context has ended, before their own contexts are cancelled.
	// Defaults to 30 seconds.
	Grace time.Duration

	// AcceptedRisks lists the settings that are used although they can lose messages or effects. Defaults to nothing.
	AcceptedRisks []Risk

	// Trace is told what happens. Defaults to nobody.
	Trace *Trace

	// Logger gets one line for whatever a person should know. Defaults to slog.Default().
	Logger *slog.Logger

	// knownOld says that a queue for retries that is found has been there for long, as a test knows.
	knownOld bool
}

// Risk names a setting that is refused because it can lose messages or effects, unless AcceptedRisks contains it.
type Risk = risks.Risk

// Risks of a Subscriber.
const (
	// RiskDeliveryLimit accepts a queue with a delivery limit and without a dead letter exchange, with a warning: RabbitMQ drops a
	// message that was delivered that often, also when that was nobody's fault.
	RiskDeliveryLimit Risk = "RiskDeliveryLimit"

	// RiskShortWindow accepts a Processor that forgets keys sooner than Spec.MessageTTL lets messages expire, with a warning.
	// A message that waited for longer is parked as unprovable, if it may have been handled.
	RiskShortWindow Risk = "RiskShortWindow"

	// RiskExpiry accepts a queue with a time to live and without a dead letter exchange, with a warning: RabbitMQ drops a message
	// that nobody has received in that time.
	RiskExpiry Risk = "RiskExpiry"
)

// Trace is told what becomes of a Subscriber's messages. Nil hooks are left out. Hooks run on several goroutines at a time: they
// must be quick and safe for concurrent use.
type Trace struct {
	Consuming func()                                 // connected, and deliveries begin
	Lost      func(err error, held int)              // the channel is gone; so many messages are delivered again
	Acked     func(*consumer.Message)                // the acknowledgement is on its way
	Deferred  func(*consumer.Message, time.Duration) // the server has confirmed a copy that it delivers after so long
}

const (
	maxPrefetch        = 65535 // what AMQP has room for
	rabbitsTimeout     = 30 * time.Minute
	minConsumerTimeout = time.Second
)

// withDefaults returns c complete, or what is wrong with it, all of it at once.
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
		refuse("Queue has %d bytes, and its queues for retries have longer names: at most %d", len(c.Queue), maxShort-retrySuffixRoom)
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
		{"Prefetch", &c.Prefetch, 0},
	} {
		if *field.value < 0 {
			refuse("%s is %d; it must not be negative", field.name, *field.value)
		}
		if *field.value == 0 {
			*field.value = field.standard
		}
	}
	if _, batches := c.Processor.(consumer.BatchProcessor); c.Prefetch == 0 && !batches {
		c.Prefetch = max(c.Concurrency, 100)
	}
	if c.Prefetch == 0 {
		c.Prefetch = min(max(c.Concurrency*c.MaxBatch, 100), maxPrefetch)
	}
	if c.Prefetch > maxPrefetch {
		refuse("Prefetch is %d; it is at most %d", c.Prefetch, maxPrefetch)
	}
	for _, field := range []struct {
		name            string
		value           *time.Duration
		standard, least time.Duration
	}{
		{"Grace", &c.Grace, 30 * time.Second, 0},
		{"ConsumerTimeout", &c.ConsumerTimeout, rabbitsTimeout, minConsumerTimeout},
	} {
		if *field.value == 0 {
			*field.value = field.standard
		}
		if *field.value < field.least {
			refuse("%s is %v; it is at least %v", field.name, *field.value, field.least)
		}
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
	if err := c.checkLimit(""); err != nil {
		wrong = append(wrong, err)
	}
	if err := c.checkExpiry(); err != nil {
		wrong = append(wrong, err)
	}
	if err := c.checkWindow(); err != nil {
		wrong = append(wrong, err)
	}
	if err := risks.Check(c.AcceptedRisks, RiskDeliveryLimit, RiskShortWindow, RiskExpiry); err != nil {
		refuse("%w", err)
	}
	if c.Trace == nil {
		c.Trace = &Trace{}
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	return c, errors.Join(wrong...)
}
