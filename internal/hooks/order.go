package hooks

import "sync"

// Order runs functions one after the other, in the order of their Add, without holding a lock while one runs. The zero
// value is ready for use. It is safe for concurrent use.
//
// Two goroutines that change a state and then report it could report in the wrong order: a gauge would then show a
// pause that is over.
type Order struct {
	mu      sync.Mutex
	waiting []func()
	running bool
}

// Add adds f. Call it under the lock that guards the reported state.
func (o *Order) Add(f func()) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.waiting = append(o.waiting, f)
}

// Run runs what was added. Call it without a lock. When another goroutine is running functions, Run leaves the rest to
// it and returns.
func (o *Order) Run() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.running {
		return
	}
	o.running = true
	defer func() { o.running = false }() // also when a function calls runtime.Goexit
	for len(o.waiting) > 0 {
		f := o.waiting[0]
		o.waiting = o.waiting[1:]
		o.call(f)
	}
}

// call calls f without mu, which the caller holds.
func (o *Order) call(f func()) {
	o.mu.Unlock()
	defer o.mu.Lock()
	f()
}
