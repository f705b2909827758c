package outbox

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// A Publisher must return by the deadline of its context. One that does not is logged after Config.Margin. Config.LeaseTTL after the
// deadline the session is given up, so that other relays get its shards. The calls are left behind, and this relay takes no shards
// before they have returned: its next calls would hang as well, and hold the shards for as long again. What they publish meanwhile is
// a repeat.
var errOverdue = errors.New("a publisher has not returned by Config.LeaseTTL after its deadline")

// watch has c looked after until it returns; stop ends that.
func (b *batch) watch(ctx context.Context, c *call) (stop func()) {
	deadline := time.Until(c.until)
	publisher := fmt.Sprintf("%T", c.Publisher)
	overdue := time.AfterFunc(deadline+b.cfg.Margin, func() {
		b.cfg.Logger.ErrorContext(ctx, "outbox: a publisher has not returned by its deadline, and what it was given stands still", "relay", b.cfg.Name,
			"publisher", publisher, "messages", len(c.sent))
	})
	givenUp := time.AfterFunc(deadline+b.cfg.LeaseTTL, func() { b.lost(fmt.Errorf("%w: %s", errOverdue, publisher)) })
	return func() {
		overdue.Stop()
		givenUp.Stop()
	}
}

// publish returns when nothing more may be published and no call is under way. Calls that do not return within Config.Margin after the
// session's end are left behind, in b.calls.
func (b *batch) publish() {
	defer close(b.left)
	over := b.work.Done()
	var limit <-chan time.Time
	for {
		for _, n := range b.lanes {
			if c := b.begin(n); c != nil {
				b.calls[c] = true
			}
		}
		if len(b.calls) == 0 {
			return
		}
		select {
		case c := <-b.answers:
			delete(b.calls, c)
			b.answered(c)
		case <-over:
			over, limit = nil, time.After(b.cfg.Margin)
		case <-limit:
			return
		}
	}
}

// awaitCalls returns when the calls that were left behind have returned, or ctx has ended.
func (d *dispatcher) awaitCalls(ctx context.Context) {
	if len(d.calls) == 0 || ctx.Err() != nil {
		return
	}
	d.cfg.Logger.ErrorContext(ctx, "outbox: this relay takes no shards until its publisher returns", "relay", d.cfg.Name,
		"publisher", fmt.Sprintf("%T", d.calls[0].Publisher), "calls", len(d.calls))
	for _, c := range d.calls {
		select {
		case <-c.returned:
		case <-ctx.Done():
			return
		}
	}
	d.cfg.Logger.InfoContext(ctx, "outbox: the publisher has returned, and this relay takes shards again", "relay", d.cfg.Name)
}
