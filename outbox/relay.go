package outbox

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync/atomic"
	"time"
)

// Relay publishes what transactions have enqueued. Run one in every process: those that are alive share the outbox, and
// take over from one that dies, after LeaseTTL at the latest.
//
// The path of a message: Run → [Session].Renew holds shards (relay_session.go) → Lease takes what is due of them
// (relay_dispatch.go) → Publish, key by key in order → Settle (relay_batch.go). A crash anywhere before Settle means that
// another relay publishes the message, again where the broker had it already.
type Relay struct {
	cfg     Config
	outlets outlets
	topics  topics
	budget  *parkBudget
	outages outages
	wake    chan struct{}
	running atomic.Bool
}

// Errors of Run and RunOnce.
var (
	// ErrRunning: a Relay runs once at a time.
	ErrRunning = errors.New("outbox: this relay runs already")

	// ErrSchema: the outbox's tables are missing, or of another version. Queues wrap it.
	ErrSchema = errors.New("outbox: the database's schema does not fit")

	// ErrStalled: there are messages that are due, and the publisher neither takes nor refuses them.
	ErrStalled = errors.New("outbox: no message could be tried")
)

// NewRelay returns a Relay; Run starts it. It names the field of cfg that is at fault.
func NewRelay(cfg Config) (*Relay, error) {
	cfg, err := cfg.complete()
	if err != nil {
		return nil, err
	}
	return &Relay{cfg: cfg, outlets: newOutlets(cfg), budget: newParkBudget(cfg.ParkLimit), outages: outages{logger: cfg.Logger}, wake: make(chan struct{}, 1)}, nil
}

// Run publishes until ctx ends. Then it leases nothing more and begins no Publish, waits for those that are under way and
// settles what they say, gives back its shards, and returns nil: after LeaseTTL at the latest, or somewhat later if the
// database hangs, or Margin later if a publisher has not returned by then; its call is left behind. Faults of the database are
// reported and waited out, and a lease that was lost is taken anew. Run fails only at its start, when it runs already or the schema
// is missing.
//
// LeaseTTL after the deadline of a call that does not return, Run gives its shards back and takes none until the publisher has
// returned. What that call publishes late is a repeat, with the ID of the first.
func (r *Relay) Run(ctx context.Context) error {
	if !r.running.CompareAndSwap(false, true) {
		return ErrRunning
	}
	defer r.running.Store(false)
	for failures, started := 0, false; ctx.Err() == nil; {
		s, err := r.open(ctx)
		switch {
		case err != nil && errors.Is(err, ErrSchema) && !started:
			return err
		case err != nil:
			if ctx.Err() == nil {
				r.queueFailed(ctx, opOpen, err)
			}
			failures++
			wait(ctx, queueBackoff(failures))
			continue
		}
		failures, started = 0, true
		d := newDispatcher(s, untilStopped)
		s.serve(ctx, func() { d.run(ctx) })
		d.awaitCalls(ctx)
	}
	return nil
}

// RunOnce publishes everything that is due and that no other relay holds, then returns how many messages the broker has
// confirmed. What failed is held back or parked, and no error. An error says that there may be more to publish: ctx has
// ended, the database failed, the lease was lost, or a publisher is unavailable.
func (r *Relay) RunOnce(ctx context.Context) (published int, err error) {
	if !r.running.CompareAndSwap(false, true) {
		return 0, ErrRunning
	}
	defer r.running.Store(false)
	s, err := r.open(ctx)
	if err != nil {
		return 0, err
	}
	d := newDispatcher(s, untilNothingIsDue)
	s.serve(ctx, func() { d.run(ctx) })
	return d.published, d.err
}

// Wake makes the relay look for messages at once: after a commit that its Queue does not notice by itself. It never blocks.
func (r *Relay) Wake() {
	select {
	case r.wake <- struct{}{}:
	default: // it is about to look anyway
	}
}

// wait reports whether d has passed before ctx ended.
func wait(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return ctx.Err() == nil
	}
}

// queueBackoff is between half and all of what doubles with each failure in a row of the database, up to a few seconds.
func queueBackoff(failures int) time.Duration {
	d := min(50*time.Millisecond<<min(failures-1, 10), 3*time.Second)
	return d/2 + rand.N(d/2+1)
}
