package relay

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/txonce/txonce/internal/await"
	"github.com/txonce/txonce/outbox"
	"github.com/txonce/txonce/outbox/driver"
)

// settleOutcomes writes the outcomes to the outbox, and returns how many of them, from the first on. It tries again for
// as long as the lease lasts. The published messages behind those will be published again.
func (b *batch) settleOutcomes() int { return b.settle(0, len(b.outcomes)) }

// settle settles b.outcomes[from:to], which are not empty, and returns the end of what it has settled. If the database
// refuses one of them, settle halves them until that one is alone: it is set aside, and the others are settled. Without
// that they would be published again after each start.
func (b *batch) settle(from, to int) int {
	s, r := b.session, b.relay
	for failures, refusals := 0, 0; s.work.Err() == nil; {
		settling, cancel := context.WithTimeout(s.work, r.cfg.LeaseTTL)
		err := s.queue.Settle(settling, b.outcomes[from:to])
		cancel()
		switch {
		case err == nil:
			r.outages.recovered(s.work, opSettle)
			s.losses.Moved(sent(b.outcomes[from:to]))
			return to
		case errors.Is(err, driver.ErrLeaseLost):
			s.leaseLost(LeaseStale, err)
			return from
		case s.work.Err() != nil:
			return from
		case errors.Is(err, driver.ErrRefused) && to-from > 1:
			middle := from + (to-from)/2
			if end := b.settle(from, middle); end < middle {
				return end
			}
			return b.settle(middle, to)
		case errors.Is(err, driver.ErrRefused) && refusals < 2:
			b.setAside(from, refusals, err)
			refusals++
			continue
		}
		failures++
		r.queueFailed(s.work, opSettle, fmt.Errorf("relay: settle %d messages: %w", to-from, err))
		_ = await.Sleep(s.work, queueBackoff(failures)) // the loop looks at s.work
	}
	return from
}

// sent counts the messages that were published.
func sent(outcomes []driver.Outcome) (n int) {
	for i := range outcomes {
		if outcomes[i].Verdict == driver.Sent {
			n++
		}
	}
	return n
}

// refusedDelay is how long a message waits if the database refuses to park it.
const refusedDelay = time.Minute

// setAside changes the outcome of a message that the database refuses to store. A message that was published waits for
// a minute. Of the others, first the message is parked without a hold of its key, which needs no further row. If that
// is refused too, it waits for a minute.
func (b *batch) setAside(i, refusals int, refused error) {
	o := &b.outcomes[i]
	before := o.Err
	switch {
	case refusals > 0:
		b.deferUncounted(i, refusedDelay, refused)
		return
	case o.Verdict == driver.Sent: // it is not dead; a repeat has the same ID
		b.relay.cfg.Logger.ErrorContext(b.session.work,
			"relay: the database refuses to record that a message was published, so it is published again after a minute; "+
				"see the error, which may be about outbox_sent (KeepSent)", "relay", b.relay.cfg.Name, "topic", o.Topic,
			"id", o.ID, "seq", o.Seq, "error", refused)
		b.deferUncounted(i, refusedDelay, refused)
		return
	case before == nil:
		before = errors.New("it was not tried")
	}
	b.parkOrDefer(i, fmt.Errorf("%w (before: %w)", refused, before))
	o.ParkPolicy = outbox.SkipMessage
}

// report logs and traces what was settled, and returns it for the dispatcher.
func (b *batch) report(settled []driver.Outcome) (rep report) {
	ctx, r := b.session.work, b.relay
	rep.unavailableErr = b.unavailableErr
	var firstCounted *driver.Outcome
	counted, parked := 0, 0
	for i := range settled {
		o := &settled[i]
		switch o.Verdict {
		case driver.Sent:
			rep.published++
		case driver.Deferred:
			rep.failed++
			if !o.BrokerFault { // the others are logged once, when their publisher or topic begins to cool down
				if counted++; firstCounted == nil {
					firstCounted = o
				}
			}
			if rep.retryIn == 0 || o.Delay < rep.retryIn {
				rep.retryIn = max(o.Delay, 1)
			}
		case driver.Parked:
			rep.failed++
			parked++
			r.cfg.Logger.ErrorContext(ctx, "relay: message parked", "relay", r.cfg.Name, "topic", o.Topic, "id", o.ID,
				"seq", o.Seq, "error", o.Err)
		case driver.Returned:
			rep.returned++
			if o.Delay > 0 && (rep.retryIn == 0 || o.Delay < rep.retryIn) {
				rep.retryIn = o.Delay
			}
		}
	}
	if o := firstCounted; o != nil {
		r.cfg.Logger.WarnContext(ctx, "relay: messages deferred", "relay", r.cfg.Name, "messages", counted,
			"topic", o.Topic, "id", o.ID, "seq", o.Seq, "attempts", o.Attempts+1, "delay", o.Delay, "error", o.Err)
	}
	r.parkBudget.giveBack(b.parkTokens - parked)
	b.settled(ctx, settled)
	return rep
}
