package consumer

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// Consumer claims, handles and commits. Make one with New. It is safe for concurrent use; copies of one message that
// arrive at the same time wait for each other.
type Consumer[TTx any] struct {
	cfg      Config[TTx]
	lot      ParkingLot[TTx] // nil: messages given up on are rejected
	keys     keyLock
	pause    pause
	inFlight inFlight
	history  history
	doubts   doubts
	budget   *parkBudget
	trial    chan struct{} // holds one while a suspect is tried
	started  atomic.Bool   // everything is registered
	closed   atomic.Bool
	starting chan struct{} // holds one while somebody starts

	registered bool // with the store; belongs to the holder of starting

	sourcesMu sync.Mutex
	sources   []string // see AddSource
}

var (
	_ Processor      = (*Consumer[any])(nil)
	_ BatchProcessor = (*Consumer[any])(nil)
	_ Starter        = (*Consumer[any])(nil)
	_ Windowed       = (*Consumer[any])(nil)
	_ Sourced        = (*Consumer[any])(nil)
)

// New returns a Consumer, or an error that names the field of cfg that it refuses. It does not touch the database.
func New[TTx any](cfg Config[TTx]) (*Consumer[TTx], error) {
	if isNil(cfg.Store) {
		return nil, fmt.Errorf("consumer: Config.Store is a nil %T", cfg.Store)
	}
	cfg, err := cfg.complete()
	if err != nil {
		return nil, err
	}
	c := &Consumer[TTx]{
		cfg:      cfg,
		pause:    pause{backoff: cfg.wait, notice: cfg.notice("the database is at fault; nothing is parked, and it tries again", "a COMMIT", "the database commits again")},
		budget:   newParkBudget(cfg.ParkLimit, cfg.notice("too many messages to park; Config.ParkLimit says how many are too many", "a handler that succeeds, tried one message at a time", "handlers succeed and fewer messages are to be parked")),
		trial:    make(chan struct{}, 1),
		starting: make(chan struct{}, 1),
	}
	c.lot, _ = cfg.Store.(ParkingLot[TTx])
	return c, nil
}

// notice is how a pause is told. Event.Consumer is filled in here.
func (cfg *Config[TTx]) notice(why, until, over string) *notice {
	name, trace := cfg.Name, cfg.Trace
	return &notice{
		logger: cfg.Logger.With("consumer", name), why: why, until: until, over: over,
		tell: func(ctx context.Context, e Event) {
			e.Consumer = name
			trace.emit(ctx, onResumed, e)
		},
	}
}

// wait is Backoff for whatever a user's function may return.
func (cfg *Config[TTx]) wait(attempt int) time.Duration { return max(cfg.Backoff(max(attempt, 1)), 0) }

// MaxAttempts is how often a message is tried before it is parked. awssqs compares it with a queue's redrive policy.
func (c *Consumer[TTx]) MaxAttempts() int { return c.cfg.MaxAttempts }

// Window is how long keys are remembered.
func (c *Consumer[TTx]) Window() time.Duration { return c.cfg.Window }

// Process implements Processor. Attempts that are nobody's fault do not count, and go on for as long as ctx does: the
// database is away, or another process holds the message's key.
//
// nil says that the effects are committed, or the message is parked. A *RetryError is returned only when ctx has ended, or
// after Close.
// Any other error says that the message was given up on, and that the Store is no ParkingLot.
func (c *Consumer[TTx]) Process(ctx context.Context, msg *Message) error {
	m := *msg
	m.Attempt = max(m.Attempt, 1)
	for deferrals := 0; ; {
		err := c.process(ctx, []*Message{&m}, once{deferrals: deferrals})[0]
		retry, again := errors.AsType[*RetryError](err)
		if !again || ctx.Err() != nil || errors.Is(err, ErrClosed) {
			return err
		}
		timer := time.NewTimer(retry.After)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return err
		}
		if retry.Uncounted {
			deferrals++
		} else {
			deferrals = 0
			m.Attempt++
		}
	}
}

// patience is how long a batch waits, in all, for other calls of this Consumer that process its keys.
const patience = time.Second

// ProcessBatch implements BatchProcessor. The messages share one transaction. When that fails, the message at fault is
// taken out of it, or looked for by halves where it is unknown, so that the rest is not held up; only what stands behind
// a failure of its own ordering key waits for it.
func (c *Consumer[TTx]) ProcessBatch(ctx context.Context, msgs []*Message) []error {
	return c.process(ctx, msgs, once{patience: patience})
}
