package deliver

import (
	"errors"
	"log/slog"
	"time"

	"github.com/txonce/txonce/consumer"
)

// Errors that Settle gets for deliveries that were not handled.
var (
	// ErrLost means that the broker took the delivery away, see Deliverer.Lose: acknowledge nothing.
	ErrLost = errors.New("the broker has taken this delivery away")

	// ErrStopped is wrapped in a *consumer.RetryError with Held: the delivery was not handled, give it back.
	ErrStopped = errors.New("not handled any more: the subscriber stops")

	// ErrAbandoned is wrapped in a *consumer.RetryError with Held: the handler still runs although its context is
	// cancelled. That handler and the next receiver of the message cannot both commit.
	ErrAbandoned = errors.New("a handler is still running although its context is cancelled")
)

// Config of a Deliverer.
type Config struct {
	// Processor handles the messages. A driver.BatchProcessor gets batches. Required.
	Processor consumer.Processor

	// Concurrency is the maximum number of batches in work at a time.
	//
	// Defaults to 1.
	Concurrency int

	// MaxBatch is the maximum number of messages in a batch for a BatchProcessor.
	//
	// Defaults to 1.
	MaxBatch int

	// MaxBatchBytes is the maximum sum of Delivery.Size in a batch, unless the first delivery alone is larger.
	//
	// Defaults to no limit.
	MaxBatchBytes int

	// SplitEvenly also limits a batch to its share of the unsettled deliveries: their number divided by Concurrency.
	// Without it one batch may take all that waits, and the others have nothing to do until more arrives.
	//
	// Defaults to false.
	SplitEvenly bool

	// Capacity is the maximum number of deliveries that are reserved or unsettled. Only Reserve looks at it.
	//
	// Defaults to no limit.
	Capacity int

	// Settle gets each added delivery exactly once, with its result: nil means acknowledge it; a *consumer.RetryError
	// means that it was not handled and must be delivered again; ErrLost means that the broker took it away; any other
	// error means that the Processor rejected it: it must stay with the broker, and Drain returns that error.
	// Deliveries of one key are settled in order. Settle runs on the goroutine of a batch, or on that of the caller of
	// Add, Lose or Drain; several calls may run at a time. While it blocks, the keys of its batch are blocked.
	// Required.
	Settle func(d *Delivery, err error)

	// Flush is called after Settle when no other call of Settle follows immediately, so that answers can be sent
	// together.
	//
	// Defaults to nothing.
	Flush func()

	// Keep reports whether a delivery that must be handled again waits for that in memory, unsettled. Its
	// Message.Attempt is incremented unless retry is uncounted. Keep must not call the Deliverer.
	//
	// Defaults to keeping none.
	Keep func(d *Delivery, retry *consumer.RetryError) bool

	// Logger gets one line when the grace period ends before a handler does.
	//
	// Defaults to slog.Default().
	Logger *slog.Logger
}

// DefaultGrace is the default of a subscriber's Grace.
const DefaultGrace = 30 * time.Second

// SetDefault sets a field of a subscriber's config to its default if it is 0, and refuses a negative value.
func SetDefault[T int | time.Duration](refuse func(format string, args ...any), name string, value *T, standard T) {
	switch {
	case *value < 0:
		refuse("%s is %v; it must not be negative", name, *value)
	case *value == 0:
		*value = standard
	}
}
