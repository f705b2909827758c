package outbox

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// settle writes down the outcomes, trying for as long as the session lasts, and reports whether it has. When it has not,
// what was published will be published again.
func (b *batch) settle() bool {
	for failures := 0; b.work.Err() == nil; {
		settling, cancel := context.WithTimeout(b.work, b.cfg.LeaseTTL)
		err := b.queue.Settle(settling, b.outcomes)
		cancel()
		switch {
		case err == nil:
			b.outages.over(b.work, opSettle)
			return true
		case errors.Is(err, ErrLeaseLost):
			b.lost(err)
			return false
		case b.work.Err() != nil:
			return false
		}
		failures++
		b.queueFailed(b.work, opSettle, fmt.Errorf("outbox: settle %d messages: %w", len(b.outcomes), err))
		wait(b.work, queueBackoff(failures))
	}
	return false
}

// report tells what was settled: to the log, to Trace, and to the dispatcher.
func (b *batch) report() (rep report) {
	rep.why = b.why
	var first *Outcome
	var oldest time.Time
	deferred := 0
	for i := range b.outcomes {
		o := &b.outcomes[i]
		switch o.Verdict {
		case Sent:
			rep.published++
			if oldest.IsZero() || o.Enqueued.Before(oldest) {
				oldest = o.Enqueued
			}
		case Deferred:
			rep.failed++
			if !o.Uncounted { // those are told of once, when their publisher begins to rest
				if deferred++; first == nil {
					first = o
				}
			}
			if rep.retryIn == 0 || o.Delay < rep.retryIn {
				rep.retryIn = max(o.Delay, 1)
			}
			b.trace(b.work, onDeferred, Event{Message: &o.Leased, Err: o.Cause, Took: o.Delay})
		case Parked:
			rep.failed++
			b.cfg.Logger.ErrorContext(b.work, "outbox: message parked", "relay", b.cfg.Name, "topic", o.Topic, "id", o.ID, "seq", o.Seq, "error", o.Cause)
			b.trace(b.work, onParked, Event{Message: &o.Leased, Err: o.Cause})
		case Returned:
			rep.returned++
		}
	}
	if first != nil {
		b.cfg.Logger.WarnContext(b.work, "outbox: messages deferred", "relay", b.cfg.Name, "messages", deferred,
			"topic", first.Topic, "id", first.ID, "seq", first.Seq, "attempts", first.Attempts+1, "delay", first.Delay, "error", first.Cause)
	}
	if rep.published > 0 {
		b.trace(b.work, onPublished, Event{Count: rep.published, Took: time.Since(b.began), Age: time.Since(oldest)})
	}
	if rep.returned > 0 {
		b.trace(b.work, onReturned, Event{Count: rep.returned})
	}
	return rep
}
