package wire

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"

	"github.com/txonce/txonce/outbox"
)

// flaky is a publisher in memory that fails now and then, as the seed says: it refuses a message, or all of them because
// the broker is away, or takes a message and loses the confirmation.
type flaky struct {
	*publisher
	failures *atomic.Int64

	mu  sync.Mutex
	rng *rand.Rand
}

var (
	errRefused = errors.New("planned: the broker has refused the message")
	errAway    = errors.New("planned: the broker is away")
	errLost    = errors.New("planned: the confirmation was lost")
)

// flaky returns the publisher of the n-th relay.
func (w *world) flaky(n int) *flaky {
	return &flaky{publisher: &w.publish, failures: &w.failures, rng: rand.New(rand.NewPCG(w.seed, uint64(n)+1<<33))}
}

// Publish publishes.
func (p *flaky) Publish(_ context.Context, msgs []outbox.Message) []error {
	p.mu.Lock()
	defer p.mu.Unlock()
	errs := make([]error, len(msgs))
	if p.rng.IntN(16) == 0 {
		p.failures.Add(1)
		for i := range errs {
			errs[i] = &outbox.UnavailableError{Err: errAway}
		}
		return errs
	}
	for i, m := range msgs {
		draw := p.rng.IntN(16)
		if draw == 0 {
			errs[i] = errRefused
		} else {
			p.add(string(m.Payload))
		}
		if draw == 1 {
			errs[i] = errLost
		}
		if errs[i] != nil {
			p.failures.Add(1)
		}
	}
	return errs
}
