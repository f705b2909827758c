package main

import (
	"context"
	"errors"
	"sync"
	"time"
)

var errDeclined = errors.New("the card was declined")

// bank takes the place of a payment provider's API. As the real ones do, it charges once per idempotency key.
type bank struct {
	delay time.Duration

	mu      sync.Mutex
	charged map[string]int64 // cents by key
	calls   int
	onCall  func() // tests and the demo act while the bank works
}

func newBank() *bank { return &bank{delay: 5 * time.Millisecond, charged: map[string]int64{}} }

func (b *bank) charge(ctx context.Context, key, card string, cents int64) error {
	b.mu.Lock()
	b.calls++
	onCall := b.onCall
	b.mu.Unlock()
	if onCall != nil {
		onCall()
	}
	select {
	case <-time.After(b.delay):
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if card == "declined" {
		return errDeclined
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.charged[key] = cents
	return nil
}

// during calls f while each later charge runs; nil ends that.
func (b *bank) during(f func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.onCall = f
}

// count returns how often the bank was asked.
func (b *bank) count() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.calls
}

// charges returns how many cards were charged.
func (b *bank) charges() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.charged)
}
