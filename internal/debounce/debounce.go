// Package debounce does one thing for all reasons of a while.
package debounce

import (
	"context"
	"sync"
	"time"
)

// Caller calls a function soon after each Call, and once for those that come within a pause. Its zero value is ready for use.
type Caller struct {
	mu      sync.Mutex
	running bool // a goroutine is at it
	again   bool // there was a Call since the function was last begun
}

// Call returns at once. The function runs on a goroutine that lives for as long as calls come, and a pause longer; ctx gives it
// values, no limit, so it must end by itself.
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

// next reports whether there is reason for another run; if not, the next Call starts another goroutine.
func (c *Caller) next() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.running = c.again
	c.again = false
	return c.running
}
