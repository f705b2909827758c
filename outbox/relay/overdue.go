package relay

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// errOverdue ends a session because a publisher has not returned LeaseTTL after its deadline. Other relays then get its
// shards. This relay takes no shards before the call has returned, because its next calls would hang as well.
var errOverdue = errors.New("a publisher has not returned by Config.LeaseTTL after its deadline")

// watch logs when c has not returned by Margin after its deadline, and ends the session LeaseTTL after it; stop ends
// the watch.
func (b *batch) watch(ctx context.Context, c *call) (stop func()) {
	cfg, untilDeadline := &b.relay.cfg, time.Until(c.deadline)
	publisher := c.queue.publisher.typeName()
	late := time.AfterFunc(untilDeadline+cfg.Margin, func() {
		cfg.Logger.ErrorContext(ctx, "relay: a publisher has not returned by its deadline; the messages of the call wait for it", "relay", cfg.Name,
			"publisher", publisher, "messages", len(c.positions))
	})
	overdue := time.AfterFunc(untilDeadline+cfg.LeaseTTL,
		func() { b.session.leaseLost(LeaseLost, fmt.Errorf("%w: %s", errOverdue, publisher)) })
	return func() {
		late.Stop()
		overdue.Stop()
	}
}

// awaitOverdueCalls returns when the calls that were left behind have returned, or ctx has ended.
func (d *dispatcher) awaitOverdueCalls(ctx context.Context) {
	if len(d.overdueCalls) == 0 || ctx.Err() != nil {
		return
	}
	cfg := &d.relay.cfg
	cfg.Logger.ErrorContext(ctx, "relay: this relay takes no shards until its publisher returns", "relay", cfg.Name,
		"publisher", d.overdueCalls[0].queue.publisher.typeName(), "calls", len(d.overdueCalls))
	for _, c := range d.overdueCalls {
		select {
		case <-c.returned:
		case <-ctx.Done():
			return
		}
	}
	cfg.Logger.InfoContext(ctx, "relay: the publisher has returned, and this relay takes shards again", "relay",
		cfg.Name)
}
