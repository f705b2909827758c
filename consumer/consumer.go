package consumer

import (
	"context"
	"errors"
	"time"

	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/dedup/driver"
	"github.com/txonce/txonce/internal/await"
	"github.com/txonce/txonce/internal/hooks"
	"github.com/txonce/txonce/internal/losses"
	"github.com/txonce/txonce/observe"
)

// Consumer claims each message, runs its handler, and commits. Make one with New. It is safe for concurrent use. Copies
// of one message that arrive at the same time wait for each other.
type Consumer[TTx any] struct {
	cfg          Config[TTx]
	classify     classifier
	letters      *letters[TTx]
	losses       *losses.Watch
	registration *registration
	gate         *gate
	memory       memory
	panics       *hooks.Panics           // of the hooks of Config.Trace
	interleaver  driver.Interleaver[TTx] // nil: handlers are never interleaved
	retries      retryLog
	replayFault  *hooks.Pause  // of RunReplays
	trial        chan struct{} // contains one element while a suspect is tried
	// contains one element while a message runs that has lost to other transactions again and again
	turn chan struct{}
}

var _ Processor = (*Consumer[any])(nil)

// New returns a Consumer, or an error that names the field of cfg that is invalid. It does not use the database.
func New[TTx any](cfg Config[TTx]) (*Consumer[TTx], error) {
	cfg, err := cfg.complete()
	if err != nil {
		return nil, err
	}
	panics := &hooks.Panics{Logger: cfg.Logger.With("consumer", cfg.Name), Owner: "consumer"}
	classify := newClassifier(cfg.Store)
	c := &Consumer[TTx]{
		registration: newRegistration(&cfg, classify),
		cfg:          cfg,
		classify:     classify,
		letters:      &letters[TTx]{store: cfg.Store, classify: classify},
		panics:       panics,
		losses: losses.New(cfg.Store, losses.Config{
			Name: cfg.Name, Window: cfg.Window, Logger: cfg.Logger, Resend: resend,
			WentBack: func(ctx context.Context, l observe.Loss) {
				hooks.Call(ctx, panics, "WentBack", cfg.Trace.WentBack, l)
			},
		}),
		gate:    newGate(&cfg, panics),
		retries: retryLog{logger: cfg.Logger},
		trial:   make(chan struct{}, 1),
		turn:    make(chan struct{}, 1),
		replayFault: &hooks.Pause{
			Logger: panics.Logger, Owner: "consumer: replays", Panics: panics, Why: explain,
			WaitsFor: "an answer of the database", Recovered: "the database works again",
		},
	}
	c.letters.lot, _ = cfg.Store.(parkingLot[TTx])
	if cfg.Interleave {
		c.interleaver, _ = cfg.Store.(driver.Interleaver[TTx])
	}
	return c, nil
}

// MaxAttempts returns Config.MaxAttempts or its default. awssqs compares it with a queue's redrive policy.
func (c *Consumer[TTx]) MaxAttempts() int { return c.cfg.MaxAttempts }

// Window implements driver.Windowed: it returns Config.Window or its default.
func (c *Consumer[TTx]) Window() time.Duration { return c.cfg.Window }

// resend ends the error about commits that the database has lost.
const resend = "Messages of that time were acknowledged and do not come again: send them again from their source. " +
	"Those that are not lost are duplicates then"

// Positions implements driver.Positioned: it returns Config.Store, if that is a driver.Positions, and Config.Name. The
// caller keeps positions, and reads again what the database loses, so the Consumer no longer looks for losses itself.
func (c *Consumer[TTx]) Positions() (store driver.Positions, consumer string) {
	store, _ = c.cfg.Store.(driver.Positions)
	c.losses.Close()
	return store, c.cfg.Name
}

// KeyFor returns the key that msg is claimed under, or the error that it would be parked for as no_key. It calls
// Config.Tenant and Config.Key, and claims nothing.
func (c *Consumer[TTx]) KeyFor(msg *Message) (dedup.Key, error) { return c.cfg.key(msg, true) }

// Process implements Processor. A failure of the database and a key that another process holds do not count as
// attempts, and Process goes on trying until ctx ends.
//
// nil means that the effects are committed or that the message is parked. A *RetryError is returned only after ctx has
// ended or after Close. Any other error means that the message was given up and that the Store is not a ParkingLot.
func (c *Consumer[TTx]) Process(ctx context.Context, msg *Message) error {
	m := *msg
	m.Attempt = max(m.Attempt, 1)
	for deferrals := 0; ; {
		err := c.process(ctx, []*Message{&m}, passOptions{deferrals: deferrals})[0]
		retry, again := errors.AsType[*RetryError](err)
		if !again || ctx.Err() != nil || errors.Is(err, ErrClosed) || await.Sleep(ctx, retry.After) != nil {
			return err
		}
		if retry.Held {
			deferrals++
		} else {
			deferrals = 0
			m.Attempt++
		}
	}
}

// batchKeyWait is how long a batch waits, in total, for other calls of this Consumer that process its keys.
const batchKeyWait = time.Second

// ProcessBatch handles several messages at once, without sleeping between attempts; see driver.BatchProcessor for its
// answers. The messages share one transaction, or with Config.MaxPerTransaction several. When a transaction fails, the
// failing message is tried apart from the others; if it is unknown which message fails, the batch is tried in halves.
// Only messages with the ordering key of a failed message wait for it. A crash before a COMMIT leaves nothing of its
// transaction.
func (c *Consumer[TTx]) ProcessBatch(ctx context.Context, msgs []*Message) []error {
	return c.process(ctx, msgs, passOptions{keyWait: batchKeyWait})
}
