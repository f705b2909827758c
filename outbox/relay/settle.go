package relay

import (
	"context"
	"errors"
	"fmt"

	"github.com/txonce/txonce/internal/await"
	"github.com/txonce/txonce/outbox"
)

// settleOutcomes writes the outcomes to the outbox, and reports whether it has. It tries again for as long as the lease lasts.
// After false, the published messages will be published again.
func (b *batch) settleOutcomes() bool {
	s, r := b.session, b.relay
	for failures := 0; s.work.Err() == nil; {
		settling, cancel := context.WithTimeout(s.work, r.cfg.LeaseTTL)
		err := s.queue.Settle(settling, b.outcomes)
		cancel()
		switch {
		case err == nil:
			r.outages.recovered(s.work, opSettle)
			return true
		case errors.Is(err, outbox.ErrLeaseLost):
			s.leaseLost(LeaseStale, err)
			return false
		case s.work.Err() != nil:
			return false
		}
		failures++
		r.queueFailed(s.work, opSettle, fmt.Errorf("relay: settle %d messages: %w", len(b.outcomes), err))
		_ = await.Sleep(s.work, queueBackoff(failures)) // the loop looks at s.work
	}
	return false
}

// report logs and traces what was settled, and returns it for the dispatcher.
func (b *batch) report() (rep report) {
	ctx, r := b.session.work, b.relay
	rep.unavailableErr = b.unavailableErr
	var firstCounted *outbox.Outcome
	counted := 0
	for i := range b.outcomes {
		o := &b.outcomes[i]
		switch o.Verdict {
		case outbox.Sent:
			rep.published++
		case outbox.Deferred:
			rep.failed++
			if !o.Uncounted { // the others are logged once, when their publisher or topic begins to cool down
				if counted++; firstCounted == nil {
					firstCounted = o
				}
			}
			if rep.retryIn == 0 || o.Delay < rep.retryIn {
				rep.retryIn = max(o.Delay, 1)
			}
		case outbox.Parked:
			rep.failed++
			r.cfg.Logger.ErrorContext(ctx, "relay: message parked", "relay", r.cfg.Name, "topic", o.Topic, "id", o.ID, "seq", o.Seq, "error", o.Cause)
		case outbox.Returned:
			rep.returned++
		}
	}
	if o := firstCounted; o != nil {
		r.cfg.Logger.WarnContext(ctx, "relay: messages deferred", "relay", r.cfg.Name, "messages", counted,
			"topic", o.Topic, "id", o.ID, "seq", o.Seq, "attempts", o.Attempts+1, "delay", o.Delay, "error", o.Cause)
	}
	b.settled(ctx)
	return rep
}
