package publishing

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/txonce/txonce/outbox"
)

// defaultTimeout bounds a call whose context has no deadline. A relay always sets one.
const defaultTimeout = 10 * time.Second

// A Call collects the answers to the messages of one Publish. It is safe for concurrent use.
type Call struct {
	Messages []outbox.Message

	mu       sync.Mutex
	done     chan struct{} // closed when every message has its answer
	errs     []error
	answered []bool
	left     int   // messages without an answer
	refused  []int // messages whose answer is a BatchError
	isolated bool  // refused messages were sent again, each by itself
	ended    bool  // answers that come now are too late
}

// Send publishes those messages of c, given by their index. It calls c.Answer for each, and returns when c.Done is
// closed or ctx has ended. If isolated is set, each message must have a request or channel of its own.
type Send func(ctx context.Context, c *Call, messages []int, isolated bool)

// Publish is the Publish of an adapter: errs[i] is nil only if send answered message i with nil. Its errors begin with
// the name of the adapter.
func Publish(ctx context.Context, adapter string, msgs []outbox.Message, send Send) (errs []error) {
	if len(msgs) == 0 {
		return nil
	}
	if _, ok := ctx.Deadline(); !ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, defaultTimeout)
		defer cancel()
	}
	c := newCall(msgs)
	all := make([]int, len(msgs))
	for i := range all {
		all[i] = i
	}
	send(ctx, c, all, false)
	if refused := c.isolate(ctx); len(refused) > 0 {
		send(ctx, c, refused, true)
	}
	return c.end(ctx, adapter)
}

func newCall(msgs []outbox.Message) *Call {
	n := len(msgs)
	return &Call{Messages: msgs, done: make(chan struct{}), errs: make([]error, n), answered: make([]bool, n), left: n}
}

// Answer sets the answer to message i: nil if the broker has confirmed it. Only the first answer counts, and none after
// the call has ended. It never blocks.
func (c *Call) Answer(i int, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended || c.answered[i] {
		return
	}
	c.errs[i], c.answered[i] = err, true
	if err != nil && errors.As(err, new(*BatchError)) {
		c.refused = append(c.refused, i)
	}
	c.left--
	if c.left == 0 {
		close(c.done)
	}
}

// AnswerAll answers each of messages with err.
func (c *Call) AnswerAll(messages []int, err error) {
	for _, i := range messages {
		c.Answer(i, err)
	}
}

// Done is closed when every message that was given to Send has its answer.
func (c *Call) Done() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.done
}

// Confirmed reports whether the broker has confirmed any message of the call.
func (c *Call) Confirmed() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i, answered := range c.answered {
		if answered && c.errs[i] == nil {
			return true
		}
	}
	return false
}

// isolate takes back the answers to messages that were refused with their batch, and returns these messages. If ctx has
// ended there is no time to send them again, and they keep their answers.
func (c *Call) isolate(ctx context.Context) (refused []int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.refused) == 0 || ctx.Err() != nil {
		return nil
	}
	refused, c.refused = c.refused, nil
	if c.left == 0 {
		c.done = make(chan struct{})
	}
	for _, i := range refused {
		c.errs[i], c.answered[i] = nil, false
	}
	c.left += len(refused)
	c.isolated = true
	return refused
}

// end returns the answers, and makes one for each message that has none.
func (c *Call) end(ctx context.Context, adapter string) []error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ended = true
	for i, err := range c.errs {
		batch := (*BatchError)(nil)
		switch {
		case !c.answered[i]:
			c.errs[i] = Ended(ctx, fmt.Sprintf("%s: topic %q: not confirmed; the message may have arrived", adapter,
				c.Messages[i].Topic))
		case !errors.As(err, &batch):
		case c.isolated:
			c.errs[i] = batch.Err
		default: // another message of the batch may be at fault
			c.errs[i] = Ended(ctx, fmt.Sprintf("%s: not tried by itself after its batch was refused (%v)", adapter,
				batch.Err))
		}
	}
	return c.errs
}
