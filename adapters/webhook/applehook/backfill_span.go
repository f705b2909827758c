package applehook

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/txonce/txonce/adapters/webhook"
	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/consumer/driver"
	"github.com/txonce/txonce/internal/await"
	"github.com/txonce/txonce/internal/backoff"
	"github.com/txonce/txonce/internal/usercode"
	"github.com/txonce/txonce/observe"
)

// maxRestarts is how many times a span is read again because of outdated.
const maxRestarts = 5

// span handles all notifications of a span of time.
func (b *Backfill[TTx]) span(ctx context.Context, from, to time.Time, passed *Passed) error {
	s, token := b.newSpan(from, to), ""
	seen := map[string]bool{}
	for restarts := 0; s.Start < s.End; {
		p, err := b.fetch(ctx, s, token)
		switch {
		case outdated(err) && restarts < maxRestarts:
			s, token = b.newSpan(from, to), ""
			clear(seen)
			restarts++
			continue
		case err != nil:
			return fmt.Errorf("applehook: backfill: notification history from %v to %v: %w", from.UTC(), to.UTC(), err)
		case p.HasMore && seen[p.Token]:
			return fmt.Errorf("applehook: backfill: notification history from %v to %v: Apple repeats a page without end", from.UTC(), to.UTC())
		}
		if err := b.handle(ctx, p, passed); err != nil {
			return err
		}
		if !p.HasMore {
			return nil
		}
		token = p.Token
		seen[token] = true
	}
	b.cfg.Logger.ErrorContext(ctx, "applehook: backfill was too late: Apple does not keep notifications that long; some may be lost", "app", b.cfg.Verifier.tenant,
		"after", from, "before", to)
	return nil
}

// newSpan returns a request. It begins later than from if Apple's history does by now, because this pass waited for
// something.
func (b *Backfill[TTx]) newSpan(from, to time.Time) span {
	if oldest := b.oldest(time.Now()); from.Before(oldest) {
		from = oldest
	}
	start := from.Add(-seam)
	if start.Before(b.cfg.Since) {
		start = b.cfg.Since
	}
	return span{Start: start.UnixMilli(), End: to.UnixMilli(), OnlyFailures: b.cfg.OnlyFailures}
}

// fetch asks for a page until there is an answer that will not change.
func (b *Backfill[TTx]) fetch(ctx context.Context, s span, token string) (*page, error) {
	for failures := 1; ; failures++ {
		p, err := b.history.page(ctx, s, token)
		if err == nil || !retryable(err) || ctx.Err() != nil {
			return p, err
		}
		b.waits(ctx, "Apple's API fails", failures, err)
		wait := backoff.HalfJitter(time.Second, 5*time.Minute, failures)
		if e, ok := errors.AsType[*apiError](err); ok {
			wait = max(wait, e.after)
		}
		if await.Sleep(ctx, wait) != nil {
			return nil, err
		}
	}
}

// handle verifies the notifications of a page and passes them to the Processor.
func (b *Backfill[TTx]) handle(ctx context.Context, p *page, passed *Passed) error {
	var msgs []*consumer.Message
	for _, item := range p.History {
		passed.Read++
		event, err := b.cfg.Verifier.verify(ctx, item.SignedPayload, moment{now: time.Now()})
		switch {
		case webhook.RefusalOf(err) != "":
			if err := usercode.Err("BackfillConfig.Refused",
				func() error { return b.cfg.Refused(err, item.SignedPayload) }); err != nil {
				return fmt.Errorf("applehook: backfill: a notification in Apple's history does not verify: %w", err)
			}
			passed.Skipped++
		case err != nil:
			return fmt.Errorf("applehook: backfill: %w", err)
		case event.Drop != "":
			passed.Dropped++
		default:
			event.Message.Attempt = 1
			msgs = append(msgs, &event.Message)
		}
	}
	return b.process(ctx, msgs, passed)
}

var errNotParked = errors.New("the Processor gave it up and did not keep it: give the consumer a Store that parks messages, or correct the handler")

// process returns nil when each message is committed or parked.
func (b *Backfill[TTx]) process(ctx context.Context, msgs []*consumer.Message, passed *Passed) error {
	// The Processor's answer is nil for notifications that are new, known or parked.
	var committed, parked atomic.Int64
	defer func() {
		passed.New += int(committed.Load())
		passed.Parked += int(parked.Load())
	}()
	traced := driver.WithTrace(ctx, &consumer.Trace{
		Done: func(_ context.Context, _ *consumer.Delivery, outcomes []consumer.MessageOutcome) {
			for _, o := range outcomes {
				switch o.Outcome {
				case observe.Processed:
					committed.Add(1)
				case observe.Parked:
					parked.Add(1)
				default:
				}
			}
		},
	})
	for failures := 1; len(msgs) > 0; failures++ {
		errs := b.cfg.Processor.ProcessBatch(traced, msgs)
		if len(errs) != len(msgs) {
			return fmt.Errorf("applehook: backfill: the Processor answers %d of %d messages", len(errs), len(msgs))
		}
		var again []*consumer.Message
		var last error
		wait := time.Duration(0)
		for i, err := range errs {
			if err == nil {
				continue
			}
			retry, ok := errors.AsType[*consumer.RetryError](err)
			if !ok {
				return fmt.Errorf("applehook: backfill: notification %s: %w: %w", msgs[i].ID, errNotParked, err)
			}
			if !retry.Held {
				msgs[i].Attempt++
			}
			again, last, wait = append(again, msgs[i]), err, max(wait, retry.After)
		}
		if msgs = again; len(msgs) == 0 {
			return nil
		}
		b.waits(ctx, "notifications are not handled yet", failures, last)
		if await.Sleep(ctx, max(wait, backoff.HalfJitter(50*time.Millisecond, 10*time.Second, failures))) != nil {
			return fmt.Errorf("applehook: backfill: notification %s: %w", msgs[0].ID, last)
		}
	}
	return nil
}
