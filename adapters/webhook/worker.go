package webhook

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/consumer/driver"
	"github.com/txonce/txonce/internal/counts"
	"github.com/txonce/txonce/internal/deliver"
	"github.com/txonce/txonce/outbox"
	outboxdriver "github.com/txonce/txonce/outbox/driver"
)

// WorkerConfig configures a Worker.
type WorkerConfig struct {
	// Processor handles the events: a consumer.Consumer whose Config.Key is consumer.MessageID. Its Name is
	// InboxConfig.Name. Required.
	Processor driver.BatchProcessor

	// MaxBatch is the maximum number of events that the Processor gets at once, in one transaction. All handlers of a
	// batch together must take less time than relay.Config.PublishTimeout.
	//
	// Defaults to 1.
	MaxBatch int
}

// Worker is an outbox.Publisher that hands the events of an Inbox to a consumer in the same program, so that no broker
// is needed. Set it in relay.Config.Publishers under Inbox.Topic. It is safe for concurrent use.
//
// The relay keeps the order of a key, holds back what failed, and loses nothing. When a handler fails, the event is
// deferred by relay.Config.Backoff, and the consumer parks it after consumer.Config.MaxAttempts failures in one
// process. If the relay's MaxAttempts is spent first, the relay parks it, so set that higher. A handler that is still
// running after relay.Config.PublishTimeout is cancelled, and the relay counts that as an attempt.
//
// The relay does not say how often it has leased a message, so an event whose handler ends the process is tried again
// and again.
type Worker struct {
	processor driver.BatchProcessor
	maxBatch  int
	starter   *starter
	failures  counts.Counter // by ID: attempts that failed and counted
}

var _ outbox.Publisher = (*Worker)(nil)

// NewWorker returns a Worker, or an error that names the field of cfg that is invalid.
func NewWorker(cfg WorkerConfig) (*Worker, error) {
	_, isInbox := cfg.Processor.(forwarder)
	switch {
	case isNil(cfg.Processor):
		return nil, errors.New("webhook: WorkerConfig.Processor is required, and must not be a nil pointer")
	case isInbox:
		return nil, errors.New("webhook: WorkerConfig.Processor is an Inbox: it would take each event for a duplicate; want the consumer that handles the events")
	case cfg.MaxBatch < 0:
		return nil, fmt.Errorf("webhook: WorkerConfig.MaxBatch is %d: want 1 or more", cfg.MaxBatch)
	}
	return &Worker{processor: cfg.Processor, maxBatch: max(cfg.MaxBatch, 1), starter: newStarter(cfg.Processor)}, nil
}

const (
	// maxWorkerPause is the maximum time that the relay waits when the consumer cannot work, because other events may
	// succeed earlier.
	maxWorkerPause = 5 * time.Second

	// faultsInARow is how many events may fail in a row because of the database; then the rest of the call is not
	// tried. It is more than one, because one event alone may cause such a fault each time, and must not stop the
	// others.
	faultsInARow = 20
)

// Publish implements outbox.Publisher. nil means that an event is handled or parked.
func (w *Worker) Publish(ctx context.Context, msgs []outbox.Message) []error {
	errs := make([]error, len(msgs))
	if err := w.starter.start(ctx); err != nil {
		for i := range errs {
			errs[i] = &outbox.UnavailableError{Err: opaque(fmt.Errorf("webhook: start: %w", err))}
		}
		return errs
	}
	faults := 0
	for start := 0; start < len(msgs); {
		end := min(start+w.maxBatch, len(msgs))
		if ctx.Err() != nil || faults >= faultsInARow {
			for i := start; i < len(msgs); i++ {
				errs[i] = fmt.Errorf("%w: the events before it took too long, or the database fails",
					outboxdriver.ErrNotTried)
			}
			return errs
		}
		for i, err := range w.process(ctx, msgs[start:end]) {
			errs[start+i] = w.answer(ctx, &msgs[start+i], err, start == 0)
			if retry, again := errors.AsType[*consumer.RetryError](err); again && retry.Held {
				faults++
			} else {
				faults = 0
			}
		}
		start = end
	}
	return errs
}

func (w *Worker) process(ctx context.Context, msgs []outbox.Message) []error {
	events := make([]*consumer.Message, len(msgs))
	for i, m := range msgs {
		events[i] = restored(m)
		events[i].Attempt = 1 + w.failures.Of(m.ID)
	}
	return deliver.Call(ctx, batches{w.processor}, events)
}

// opaque hides what err wraps: the relay would take a handler's own context.DeadlineExceeded for the end of its lease.
func opaque(err error) error { return errors.New(err.Error()) }

// answer turns the Processor's answer into the relay's. alone says that the event had the whole time of the call.
func (w *Worker) answer(ctx context.Context, m *outbox.Message, err error, alone bool) error {
	retry, again := errors.AsType[*consumer.RetryError](err)
	switch {
	case err == nil:
		w.failures.Forget(m.ID)
		return nil
	case !again: // the consumer gave it up, and its store keeps no dead letters: the relay keeps it
		w.failures.Forget(m.ID)
		return outbox.Permanent(err)
	case ctx.Err() != nil && alone: // the relay knows whether the time was up or the lease
		return fmt.Errorf("webhook: the handler was cancelled: %w: %s", ctx.Err(), err.Error())
	case ctx.Err() != nil:
		return fmt.Errorf("%w: %s", outboxdriver.ErrNotTried, err.Error())
	case retry.Held:
		return &outbox.UnavailableError{After: min(max(retry.After, 0), maxWorkerPause), Err: opaque(err)}
	default:
		w.failures.Add(m.ID)
		return opaque(err)
	}
}
