package stripehook

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/internal/await"
	"github.com/txonce/txonce/internal/backoff"
)

// maxBatch is how many events share a transaction.
const maxBatch = 100

// waiting is an event that is not handled yet.
type waiting struct {
	msg    *consumer.Message
	failed int       // attempts, counted or not
	due    time.Time // of its next attempt
}

// The Processor says how long an event waits for its next attempt. It waits at least as long as HalfJitter says: the
// Processor may ask for no wait, and it asks for the same short one as long as the database is away.
const (
	repeatBase  = 50 * time.Millisecond
	repeatLimit = 10 * time.Second
)

// rejectedError says that events were given up and not parked.
type rejectedError struct{ err error }

func (e *rejectedError) Error() string { return e.err.Error() }
func (e *rejectedError) Unwrap() error { return e.err }

func isRejected(err error) bool {
	_, ok := errors.AsType[*rejectedError](err)
	return ok
}

// handle hands msgs to the Processor until each is handled, parked or rejected, or until ctx ends or the Processor is
// closed. It returns nil if each is handled or parked. Events that wait for their next attempt do not hold the others
// back.
func (b *Backfill[TTx]) handle(ctx context.Context, msgs []*consumer.Message) error {
	queue := make([]waiting, len(msgs))
	for i, msg := range msgs {
		msg.Attempt = 1
		queue[i] = waiting{msg: msg}
	}
	rejected, first := 0, error(nil)
	for len(queue) > 0 {
		batch, rest := takeDue(queue, time.Now())
		if len(batch) == 0 {
			next := rest[0].due
			for _, w := range rest {
				if w.due.Before(next) {
					next = w.due
				}
			}
			if await.Sleep(ctx, time.Until(next)) != nil {
				return context.Cause(ctx)
			}
			continue
		}
		errs, err := b.call(ctx, batch)
		if err != nil {
			return err
		}
		queue = rest
		for i, err := range errs {
			if err == nil {
				continue
			}
			retry, again := errors.AsType[*consumer.RetryError](err)
			switch {
			case errors.Is(err, consumer.ErrClosed):
				return err
			case !again:
				if rejected++; first == nil {
					first = fmt.Errorf("%s was given up and could not be parked: %w", batch[i].msg.Position, err)
				}
				continue
			case !retry.Held:
				batch[i].msg.Attempt++
			}
			batch[i].failed++
			batch[i].due = time.Now().Add(max(retry.After, backoff.HalfJitter(repeatBase, repeatLimit,
				batch[i].failed)))
			queue = append(queue, batch[i])
		}
		if ctx.Err() != nil && len(queue) > 0 {
			return context.Cause(ctx)
		}
	}
	if rejected > 0 {
		return &rejectedError{fmt.Errorf("%d events were rejected; the first: %w", rejected, first)}
	}
	return nil
}

// takeDue takes the first events of queue whose attempt is due.
func takeDue(queue []waiting, now time.Time) (batch, rest []waiting) {
	for _, w := range queue {
		if len(batch) < maxBatch && !w.due.After(now) {
			batch = append(batch, w)
		} else {
			rest = append(rest, w)
		}
	}
	return batch, rest
}

// call hands one batch over. A wrong number of answers says nothing about any event.
func (b *Backfill[TTx]) call(ctx context.Context, batch []waiting) ([]error, error) {
	msgs := make([]*consumer.Message, len(batch))
	for i, w := range batch {
		msgs[i] = w.msg
	}
	errs := b.cfg.Processor.ProcessBatch(ctx, msgs)
	if len(errs) != len(batch) {
		return nil, fmt.Errorf("%T.ProcessBatch gave %d answers for %d messages", b.cfg.Processor, len(errs),
			len(batch))
	}
	return errs, nil
}
