package consumer

import (
	"context"

	"github.com/txonce/txonce/observe"
)

// HookCaller returns a func that calls the hooks of a pass over msgs that one transaction committed. A pass is a part
// of the memory of its batch, so the func allocates nothing.
func (c *Consumer[TTx]) HookCaller(msgs []*Message) func(ctx context.Context) {
	var p pass
	return func(ctx context.Context) {
		p = c.newPass(ctx, msgs, DeadLetterID{})
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
}
