package consumer

import (
	"context"

	"github.com/txonce/txonce/observe"
)

// CallHooks calls the hooks of a pass over msgs, all of which one transaction committed.
func (c *Consumer[TTx]) CallHooks(ctx context.Context, msgs []*Message) {
	p := c.newPass(ctx, msgs, DeadLetterID{})
	ctx = p.start(ctx)
	measured := p.transaction(len(msgs))
	measured.claimed()
	p.claimed(ctx, msgs)
	measured.end(ctx, observe.Committed, "", nil)
	for i := range msgs {
		p.outcome(i, MessageOutcome{Outcome: observe.Processed})
	}
	p.done(ctx)
}

// KeysInUse is how many keys the consumer's lock remembers.
func (c *Consumer[TTx]) KeysInUse() int {
	c.keys.mu.Lock()
	defer c.keys.mu.Unlock()
	return len(c.keys.keys)
}
