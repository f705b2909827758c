package consumer

import (
	"context"
	"time"

	"github.com/txonce/txonce/internal/hooks"
)

// Faults returns what a consumer calls when the database fails, and when it commits.
func Faults(report *hooks.Pause) (fails, commits func(ctx context.Context, err error)) {
	p := &pause{report: report, backoff: func(int) time.Duration { return 0 }}
	fails = func(ctx context.Context, err error) { p.fault(ctx, err, p.epoch(), 0) }
	return fails, func(ctx context.Context, _ error) { p.recovered(ctx) }
}

// Budget returns what a consumer calls when it parks a message, and before it calls a handler that succeeds.
func Budget(limit ParkLimit, report *hooks.Pause) (parks, succeeds func(ctx context.Context, err error)) {
	b := newParkBudget(limit, report)
	parks = func(ctx context.Context, err error) { b.take(ctx, err) }
	return parks, func(ctx context.Context, _ error) {
		if probe, _, _ := b.admit(ctx); probe {
			b.settle(succeeded)
		}
	}
}

// KeysInUse is how many keys the consumer's lock remembers.
func (c *Consumer[TTx]) KeysInUse() int {
	c.keys.mu.Lock()
	defer c.keys.mu.Unlock()
	return len(c.keys.keys)
}
