package relay

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/txonce/txonce/internal/await"
	"github.com/txonce/txonce/internal/backoff"
	"github.com/txonce/txonce/internal/hooks"
	"github.com/txonce/txonce/outbox/driver"
)

// Relay publishes what transactions have enqueued. New makes one, Run starts it.
//
// The path of a message: Run → [driver.Session].Renew holds shards → Lease returns the due messages of these shards →
// Publish, in the order of each key → Settle.
type Relay struct {
	cfg        Config
	publishers publishers
	topics     topicStates
	parkBudget *parkBudget
	outages    outages
	pauses     pauses
	panics     hooks.Panics // of the hooks of Config.Trace
	wake       chan struct{}
	running    atomic.Bool
}

// Errors of Run and RunOnce.
var (
	// ErrRunning says that Run or RunOnce of this Relay has not returned yet.
	ErrRunning = errors.New("relay: this relay runs already")

	// ErrStalled says that messages are due, and that the publisher has neither confirmed nor refused any of them.
	ErrStalled = errors.New("relay: no message could be tried")
)

// New returns a Relay. An error names the field of cfg that is wrong.
func New(cfg Config) (*Relay, error) {
	cfg, err := cfg.complete()
	if err != nil {
		return nil, err
	}
	publishers, err := newPublishers(cfg)
	if err != nil {
		return nil, err
	}
	r := &Relay{
		cfg: cfg, publishers: publishers, parkBudget: newParkBudget(cfg.ParkLimit), wake: make(chan struct{}, 1),
		panics: hooks.Panics{Logger: cfg.Logger.With("relay", cfg.Name), Owner: "relay"},
	}
	r.pauses = pauses{panics: &r.panics, relay: cfg.Name, paused: cfg.Trace.Paused, resumed: cfg.Trace.Resumed}
	r.outages = outages{logger: cfg.Logger, pauses: &r.pauses}
	return r, nil
}

// Run publishes until ctx ends. Then it starts no further call of Publish, waits for those under way, settles their
// messages, gives back its shards and returns nil. That takes LeaseTTL at most; somewhat longer when the database
// hangs, and Margin longer when a publisher has not returned by then: Run does not wait for such a call. Errors of the
// database are logged and retried, and a new session replaces one whose lease was lost. Run returns an error only at
// its start, when it runs already, the schema is missing, or a setting of the database breaks its statements.
//
// When a call of Publish has not returned LeaseTTL after its deadline, Run gives its shards back, and takes shards
// again after the call has returned. What that call publishes late is a repeat with the ID of the first publication.
func (r *Relay) Run(ctx context.Context) error {
	if !r.running.CompareAndSwap(false, true) {
		return ErrRunning
	}
	defer r.running.Store(false)
	watch := r.watchLosses()
	defer watch.Close()
	for failures, started := 0, false; ctx.Err() == nil; {
		s, err := r.open(ctx)
		switch {
		case err != nil && (errors.Is(err, driver.ErrSchema) || errors.Is(err, driver.ErrSettings)) && !started:
			return err
		case err != nil:
			if ctx.Err() == nil {
				r.queueFailed(ctx, opOpen, err)
			}
			failures++
			_ = await.Sleep(ctx, queueBackoff(failures)) // the loop looks at ctx
			continue
		}
		failures, started = 0, true
		s.losses = watch
		d := newDispatcher(s, untilStopped)
		s.serve(ctx, func() { d.run(ctx) })
		d.awaitOverdueCalls(ctx)
	}
	return nil
}

// RunOnce publishes everything that is due and that no other relay holds, and returns how many messages the broker has
// confirmed. A message that failed is deferred or parked, which is no error of RunOnce. After an error there may be
// more to publish: ctx ended, the database failed, the lease was lost, or a publisher is unavailable.
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

// Wake makes the relay poll at once. Call it after a commit that the Queue does not notice by itself. It never blocks.
func (r *Relay) Wake() {
	select {
	case r.wake <- struct{}{}:
	default: // a poll is coming anyway
	}
}

// queueBackoff is the time to wait after that many failures of the database in a row.
func queueBackoff(failures int) time.Duration {
	return backoff.HalfJitter(50*time.Millisecond, 3*time.Second, failures)
}
