// Package debounce combines frequent calls into one run per pause.
package debounce

import (
	"context"
	"sync"
	"time"
)

// Caller runs a function soon after a Call. Further Calls during the pause that follows cause one more run. The zero
// value is ready for use.
type Caller struct {
	mu      sync.Mutex
	running bool // its goroutine runs
	again   bool // Call was called since the latest run began
}

// Call returns at once. The function runs on a goroutine that ends one pause after the last run. ctx passes values but
// no cancellation, so the function must limit itself.
func (c *Caller) Call(ctx context.Context, pause time.Duration, fn func(context.Context)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.again = true
	if c.running {
		return
	}
	c.running = true
	go c.run(context.WithoutCancel(ctx), pause, fn)
}

func (c *Caller) run(ctx context.Context, pause time.Duration, fn func(context.Context)) {
	timer := time.NewTimer(pause)
	defer timer.Stop()
	for c.next() {
		fn(ctx)
		timer.Reset(pause)
		<-timer.C
	}
}

// next reports whether another run is needed. If not, the next Call starts a new goroutine.
func (c *Caller) next() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.running = c.again
	c.again = false
	return c.running
}
