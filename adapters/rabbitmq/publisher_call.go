package rabbitmq

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/txonce/txonce/outbox"
)

// call collects the answers to the messages of one Publish.
type call struct {
	mu    sync.Mutex
	errs  []error
	known []bool
	over  bool // answers that come now are too late
}

func newCall(n int) *call {
	return &call{errs: make([]error, n), known: make([]bool, n)}
}

// answer settles r, unless its call is over. It never blocks.
func (r *record) answer(err error) {
	if r.call.answer(r.index, err) {
		close(r.done)
	}
}

func (c *call) answer(i int, err error) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.over || c.known[i] {
		return false
	}
	c.errs[i], c.known[i] = err, true
	return true
}

// wanted says whether somebody still waits for r's answer.
func (r *record) wanted() bool {
	r.call.mu.Lock()
	defer r.call.mu.Unlock()
	return !r.call.over && !r.call.known[r.index]
}

// end answers what is still open with why the call ends before it has been answered, and returns all.
func (c *call) end(ctx context.Context) []error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.over = true
	for i := range c.errs {
		if !c.known[i] {
			c.errs[i] = unanswered(ctx)
		}
	}
	return c.errs
}

// unanswered is a message of which it is not known whether it arrived.
func unanswered(ctx context.Context) error {
	if ctx.Err() == nil {
		return errClosed()
	}
	why := context.Cause(ctx)
	err := fmt.Errorf("rabbitmq: not confirmed; the message may have arrived: %w", why)
	if errors.Is(ctx.Err(), context.Canceled) { // the relay stops, which is nobody's fault
		return err
	}
	return &outbox.UnavailableError{Err: err}
}
