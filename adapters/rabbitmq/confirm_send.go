package rabbitmq

import (
	"context"
	"time"
)

// send enqueues records, and returns when each has its answer, or ctx has ended, or the channel is closed. In the last
// case it returns the reason. It gives up on a destination when the server has confirmed nothing to it for limit.
func (c *confirmChannel) send(ctx context.Context, records []*record, limit time.Duration) error {
	if len(records) == 0 {
		return nil
	}
	if err := c.enqueue(records); err != nil {
		return err
	}
	ticker := time.NewTicker(max(limit/10, time.Millisecond))
	defer ticker.Stop()
	for _, r := range records {
		for r.open() {
			select {
			case <-r.done:
			case <-c.dead:
				if len(unanswered(records)) > 0 {
					return c.why
				}
			case <-ctx.Done():
				return ctx.Err()
			case <-ticker.C:
				c.giveUp(c.stalled(unanswered(records), limit), limit)
			}
		}
	}
	return nil
}

// giveUp answers records that the server has not confirmed in time.
func (c *confirmChannel) giveUp(records []*record, limit time.Duration) {
	blocked := c.refuses()
	for _, r := range records {
		if blocked != nil {
			r.answer(blocked)
			continue
		}
		r.answer(r.unconfirmed(limit))
	}
}

// stalled returns those of records that the server has not confirmed, if it has confirmed nothing to their destination
// for limit.
func (c *confirmChannel) stalled(records []*record, limit time.Duration) (late []*record) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, r := range records {
		if c.owed[r] && !c.over && time.Since(c.owing[r.destination()].since) >= limit {
			late = append(late, r)
		}
	}
	return late
}

// owes reports whether confirms are missing that the server may still send.
func (c *confirmChannel) owes() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !c.over && len(c.owed) > 0
}

// isDead reports whether the channel is closed.
func (c *confirmChannel) isDead() bool {
	select {
	case <-c.dead:
		return true
	default:
		return false
	}
}
