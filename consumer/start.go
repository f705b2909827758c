package consumer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unicode"

	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/dedup/driver"
	"github.com/txonce/txonce/internal/await"
	"github.com/txonce/txonce/internal/faults"
	"github.com/txonce/txonce/internal/names"
)

// startTimeout bounds one attempt to start, so that a database that never answers is logged too.
const startTimeout = 30 * time.Second

// Start checks the store and registers the consumer with it, if the store is a driver.Registrar. An error means that
// every message would fail and that only a person can correct the cause: a name that another Consumer of the program
// has, a missing schema, settings that lose commits or break statements, a user that the database refuses. Start waits
// for a database that is away or too busy to answer, as during a rolling restart, until ctx ends, with Config.Backoff
// between attempts. It logs when this begins, when the error changes, and when it ends.
//
// Start also compares the sources that subscribers added with those that other processes recorded for this name. It
// fails with dedup.ErrNameTaken if they have none in common: then another service or another queue uses the name.
//
// Start may be called any number of times, and again after an error. The first message does the same work if Start has
// not succeeded yet. A crash leaves nothing that a later start must repair.
func (c *Consumer[TTx]) Start(ctx context.Context) error { return c.registration.start(ctx) }

// registration is what the store knows about a Consumer: its name, its window and its sources. It is safe for
// concurrent use.
type registration struct {
	name     string
	window   time.Duration
	classify classifier
	store    driver.Registrar // nil: the store knows no names
	backoff  func(int) time.Duration
	logger   *slog.Logger
	started  []any // what the line in the log says about the Config

	complete   atomic.Bool // the store has registered the consumer and all its sources
	closed     atomic.Bool
	turn       chan struct{} // contains one element while a goroutine registers or closes
	registered atomic.Bool   // with the store; set while turn is held
	sources    sources
}

// sources are where messages come from, see AddSource.
type sources struct {
	mu  sync.Mutex
	all []string
}

func newRegistration[TTx any](cfg *Config[TTx], classify classifier) *registration {
	untimed, givenUp := "process", "park"
	if cfg.ParkUntimed {
		untimed = "park once keys were deleted"
	}
	if _, parks := cfg.Store.(parkingLot[TTx]); !parks {
		givenUp = "reject: the store keeps no dead letters"
	}
	store, _ := cfg.Store.(driver.Registrar)
	return &registration{
		name: cfg.Name, window: cfg.Window, classify: classify, store: store, backoff: cfg.backoff, logger: cfg.Logger,
		started: []any{
			"consumer", cfg.Name, "window", cfg.Window, "messages_without_time", untimed,
			"messages_that_fail_for_good", givenUp,
		},
		turn: make(chan struct{}, 1),
	}
}

// start is Consumer.Start.
func (r *registration) start(ctx context.Context) error {
	since, logged := time.Now(), ""
	for attempt := 1; ; attempt++ {
		limited, cancel := context.WithTimeout(ctx, startTimeout)
		err := r.register(limited)
		late := limited.Err() != nil
		cancel()
		switch {
		case err == nil:
			if logged != "" {
				r.logger.InfoContext(ctx, "consumer goes on: the database answers", "consumer", r.name,
					"waited", time.Since(since).Round(time.Millisecond))
			}
			return nil
		case ctx.Err() != nil, !late && r.fatalAtStart(err):
			return err
		}
		if text := withoutDigits(err); text != logged {
			logged = text
			r.logger.ErrorContext(ctx, "consumer does not start yet: "+explain(err)+"; it tries again",
				"consumer", r.name,
				"error", err)
		}
		if await.Sleep(ctx, r.backoff(attempt)) != nil {
			return err
		}
	}
}

// fatalAtStart reports whether waiting cannot help against err. While a consumer runs, a missing schema is retryable,
// because a migration may be running. At start it is an error in the order of a deployment. A lock that another program
// holds is none.
func (r *registration) fatalAtStart(err error) bool {
	switch {
	case errors.Is(err, dedup.ErrInFlight):
		return false
	case errors.Is(err, dedup.ErrNameTaken):
		// an error of the program: Start succeeds when it is called after Close of the other Consumer
		return true
	case !r.classify.store.Retryable(err), errors.Is(err, dedup.ErrSchema), errors.Is(err, dedup.ErrAccess),
		errors.Is(err, dedup.ErrSettings):
		return true
	default:
		return r.classify.faults != nil && faults.Any.After(r.classify.faults.FaultClass(err),
			faults.Register).Do == faults.Refuse
	}
}

// withoutDigits returns the text of err without ports, times and process IDs, which differ in every attempt.
func withoutDigits(err error) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsDigit(r) {
			return -1
		}
		return r
	}, err.Error())
}

// register makes one attempt to start. It does nothing if an earlier attempt succeeded.
func (r *registration) register(ctx context.Context) error {
	if err := r.errClosed(); err != nil || r.complete.Load() {
		return err
	}
	select {
	case r.turn <- struct{}{}:
		defer func() { <-r.turn }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if err := r.errClosed(); err != nil || r.complete.Load() {
		return err
	}
	sources := r.sources.list()
	// Sources first: a start that is refused must not register its window, which may be shorter than the recorded one.
	if r.store != nil && len(sources) > 0 {
		if err := r.store.RegisterSources(ctx, r.name, sources); err != nil {
			return fmt.Errorf("consumer %q: start: %w", r.name, err)
		}
	}
	if !r.registered.Load() {
		if r.store != nil {
			if err := r.store.Register(names.ByConsumer(ctx), r.name, r.window); err != nil {
				return fmt.Errorf("consumer %q: start: %w", r.name, err)
			}
		}
		r.registered.Store(true)
		r.logger.InfoContext(ctx, "consumer starts", r.started...)
	}
	r.sources.mu.Lock()
	defer r.sources.mu.Unlock()
	r.complete.Store(len(sources) == len(r.sources.all)) // a source may have been added meanwhile
	return nil
}

// AddSource implements driver.Sourced. Add all sources before Start or the first message. A source that is added later
// is registered before the next message, which fails if the source is refused.
func (c *Consumer[TTx]) AddSource(source string) {
	r := c.registration
	r.sources.mu.Lock()
	defer r.sources.mu.Unlock()
	if !slices.Contains(r.sources.all, source) {
		r.sources.all = append(r.sources.all, source)
		r.complete.Store(false)
	}
}

func (s *sources) list() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.all)
}

// Close releases Config.Name, if the Store is a driver.Registrar, so that another Consumer with that name can be made
// on the Store, as after a change of configuration. Stop the Subscriber first. Close waits for a Start in progress but
// not for messages in progress. Those are finished and committed, and a new Consumer with the name finds their keys in
// flight. If the Consumer is paused, Close calls Trace.Resumed.
//
// After Close, Process and ProcessBatch return a *RetryError that is ErrClosed, so that the source delivers the message
// again. Start, Replay and Discard return ErrClosed. Close does not close the Store. It is safe for concurrent use, and
// a second call does nothing.
func (c *Consumer[TTx]) Close() {
	r := c.registration
	if r.closed.Swap(true) {
		return
	}
	c.losses.Close()
	r.turn <- struct{}{} // a start in progress finishes first; later ones see that the Consumer is closed
	defer func() { <-r.turn }()
	if r.store != nil && r.registered.Load() {
		r.store.Release(r.name)
	}
	c.gate.end(context.Background()) //nolint:forbidigo // Close has no ctx, and tells a hook only
}

func (r *registration) errClosed() error {
	if r.closed.Load() {
		return fmt.Errorf("consumer %q: %w", r.name, ErrClosed)
	}
	return nil
}
