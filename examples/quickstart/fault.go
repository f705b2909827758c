package main

import (
	"context"
	"sync"

	"github.com/txonce/txonce/outbox"
)

// fault stops a worker at the worst place: in the middle of an order's work, where the parent then kills it.
type fault struct {
	mu    sync.Mutex
	after int // how many new messages until then; 0: never
	stand func(order string)
}

// At is called in the middle of every order's work. Usually it returns at once; if not, it does not return.
func (f *fault) At(order string) {
	f.mu.Lock()
	if f.after != 1 {
		f.after = max(0, f.after-1)
		f.mu.Unlock()
		return
	}
	f.stand(order)
	select {} // holding the lock: no other handler of this process gets past here either
}

// Next makes the next call of At the last.
func (f *fault) Next() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.after = 1
}

// within lets a worker stop after charge has written the ledger's row and enqueued the event, before anything is committed.
func within[TTx any](f *fault, charge handler[TTx]) handler[TTx] {
	return func(ctx context.Context, tx TTx, events outbox.Writer[TTx], o Order) error {
		err := charge(ctx, tx, events, o)
		if err == nil {
			f.At(o.ID)
		}
		return err
	}
}
