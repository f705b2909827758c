package kafka

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/txonce/txonce/outbox"
)

// call collects the answers to the messages of one Publish.
type call struct {
	done chan struct{} // closed when none is missing

	mu    sync.Mutex
	errs  []error
	known []bool
	left  int
	over  bool // answers that come now are too late
}

func newCall(n int) *call {
	c := &call{done: make(chan struct{}), errs: make([]error, n), known: make([]bool, n), left: n}
	if n == 0 {
		close(c.done)
	}
	return c
}

// answer settles message i, unless the call is over. It never blocks.
func (c *call) answer(i int, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.over || c.known[i] {
		return
	}
	c.errs[i], c.known[i] = err, true
	c.left--
	if c.left == 0 {
		close(c.done)
	}
}

// confirmed says whether any message is.
func (c *call) confirmed() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i, known := range c.known {
		if known && c.errs[i] == nil {
			return true
		}
	}
	return false
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
	why := context.Cause(ctx)
	if ctx.Err() == nil {
		why = ErrPublisherClosed
	}
	err := fmt.Errorf("kafka: no answer; the message may have arrived: %w", why)
	if errors.Is(ctx.Err(), context.Canceled) { // the relay stops, which is nobody's fault
		return err
	}
	return &outbox.UnavailableError{Err: err}
}
