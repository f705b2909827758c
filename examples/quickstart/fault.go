package main

import (
	"context"
	"sync"

	"github.com/txonce/txonce/outbox"
)

// fault stops a worker in the middle of handling an order. The parent then kills it there.
type fault struct {
	mu    sync.Mutex
	after int // the nth call of At does not return; 0: all calls return
	stand func(order string)
}

// At is called while an order is handled. It returns at once, except for the call that stops the worker: that one never
// returns.
func (f *fault) At(order string) {
	f.mu.Lock()
	if f.after != 1 {
		f.after = max(0, f.after-1)
		f.mu.Unlock()
		return
	}
	f.stand(order)
	select {} // keeps f.mu locked, so every other handler of this process stops here too
}

// Next makes the next call of At stop the worker.
func (f *fault) Next() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.after = 1
}

// within stops a worker after charge has written the ledger's row and enqueued the event, before the commit.
func within[TTx any](f *fault, charge handler[TTx]) handler[TTx] {
	return func(ctx context.Context, tx TTx, events outbox.Writer[TTx], o Order) error {
		err := charge(ctx, tx, events, o)
		if err == nil {
			f.At(o.ID)
		}
		return err
	}
}
