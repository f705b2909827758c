package consumer

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
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

// Start checks the store and registers the consumer with it, if the store is a driver.Registrar. An error means that every
// message would fail and that only a person can correct the cause: a name that another Consumer of the program has, a missing schema, settings that lose commits or break statements, a
// user that the database refuses. Start waits for a database that is away or too busy to answer, as during a rolling restart,
// until ctx ends, with Config.Backoff between attempts. It logs when this begins, when the error changes, and when it ends.
//
// If the store is a driver.SourceRegistrar, Start also compares the sources that subscribers added with those that other
// processes recorded for this name. It fails with dedup.ErrNameTaken if they have none in common: then another service or
// another queue uses the name.
//
// Start may be called any number of times, and again after an error. The first message does the same work if Start has not
// succeeded yet. A crash leaves nothing that a later start must repair.
func (c *Consumer[TTx]) Start(ctx context.Context) error {
	since, logged := time.Now(), ""
	for attempt := 1; ; attempt++ {
		limited, cancel := context.WithTimeout(ctx, startTimeout)
		err := c.register(limited)
		late := limited.Err() != nil
		cancel()
		switch {
		case err == nil:
			if logged != "" {
				c.cfg.Logger.InfoContext(ctx, "consumer goes on: the database answers", "consumer", c.cfg.Name,
					"waited", time.Since(since).Round(time.Millisecond))
			}
			return nil
		case ctx.Err() != nil, !late && c.fatalAtStart(err):
			return err
		}
		if text := withoutDigits(err); text != logged {
			logged = text
			c.cfg.Logger.ErrorContext(ctx, "consumer does not start yet: "+explain(err)+"; it tries again", "consumer", c.cfg.Name,
				"error", err)
		}
		if await.Sleep(ctx, c.cfg.backoff(attempt)) != nil {
			return err
		}
	}
}

// fatalAtStart reports whether waiting cannot help against err. While a consumer runs, a missing schema is retryable,
// because a migration may be running. At start it is an error in the order of a deployment. A lock that another program holds is none.
func (c *Consumer[TTx]) fatalAtStart(err error) bool {
	switch namer, ok := c.cfg.Store.(driver.FaultNamer); {
	case errors.Is(err, dedup.ErrInFlight):
		return false
	case errors.Is(err, dedup.ErrNameTaken): // an error of the program: Start succeeds when it is called after Close of the other Consumer
		return true
	case !c.cfg.Store.Retryable(err), errors.Is(err, dedup.ErrSchema), errors.Is(err, dedup.ErrAccess), errors.Is(err, dedup.ErrSettings):
		return true
	default:
		return ok && faults.Any.After(namer.FaultClass(err), faults.Register).Do == faults.Refuse
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
func (c *Consumer[TTx]) register(ctx context.Context) error {
	if err := c.errClosed(); err != nil || c.started.Load() {
		return err
	}
	select {
	case c.starting <- struct{}{}:
		defer func() { <-c.starting }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if err := c.errClosed(); err != nil || c.started.Load() {
		return err
	}
	sources := c.allSources()
	// Sources first: a start that is refused must not register its window, which may be shorter than the recorded one.
	if registrar, ok := c.cfg.Store.(driver.SourceRegistrar); ok && len(sources) > 0 {
		if err := registrar.RegisterSources(ctx, c.cfg.Name, sources); err != nil {
			return fmt.Errorf("consumer %q: start: %w", c.cfg.Name, err)
		}
	}
	if !c.registered.Load() {
		if registrar, ok := c.cfg.Store.(driver.Registrar); ok {
			if err := registrar.Register(names.ByConsumer(ctx), c.cfg.Name, c.cfg.Window); err != nil {
				return fmt.Errorf("consumer %q: start: %w", c.cfg.Name, err)
			}
		}
		c.registered.Store(true)
		c.logStart(ctx)
	}
	c.sourcesMu.Lock()
	defer c.sourcesMu.Unlock()
	c.started.Store(len(sources) == len(c.sources)) // a source may have been added meanwhile
	return nil
}

func (c *Consumer[TTx]) logStart(ctx context.Context) {
	untimed, givenUp := "process", "park"
	if c.cfg.Untimed == ParkUntimed {
		untimed = "park once keys were deleted"
	}
	if c.lot == nil {
		givenUp = "reject: the store keeps no dead letters"
	}
	c.cfg.Logger.InfoContext(ctx, "consumer starts", "consumer", c.cfg.Name, "window", c.cfg.Window,
		"messages_without_time", untimed, "messages_that_fail_for_good", givenUp)
}

// AddSource implements Sourced. Add all sources before Start or the first message. A source that is added later is
// registered before the next message, which fails if the source is refused.
func (c *Consumer[TTx]) AddSource(source string) {
	c.sourcesMu.Lock()
	defer c.sourcesMu.Unlock()
	if !slices.Contains(c.sources, source) {
		c.sources = append(c.sources, source)
		c.started.Store(false)
	}
}

func (c *Consumer[TTx]) allSources() []string {
	c.sourcesMu.Lock()
	defer c.sourcesMu.Unlock()
	return slices.Clone(c.sources)
}

// Close releases Config.Name, if the Store is a driver.Releaser, so that another Consumer with that name can be made on the
// Store, as after a change of configuration. Stop the Subscriber first. Close waits for a Start in progress but not for
// messages in progress. Those are finished and committed, and a new Consumer with the name finds their keys in flight. If the Consumer is
// paused, Close calls Trace.Resumed.
//
// After Close, Process and ProcessBatch return a *RetryError that is ErrClosed, so that the source delivers the message
// again. Start, Replay and Discard return ErrClosed. Close does not close the Store. It is safe for concurrent use, and a
// second call does nothing.
func (c *Consumer[TTx]) Close() {
	if c.closed.Swap(true) {
		return
	}
	c.starting <- struct{}{} // a start in progress finishes first; later ones see that the Consumer is closed
	defer func() { <-c.starting }()
	if releaser, ok := c.cfg.Store.(driver.Releaser); ok && c.registered.Load() {
		releaser.Release(c.cfg.Name)
	}
	c.gate.end(context.Background()) //nolint:forbidigo // Close has no ctx, and tells a hook only
}

func (c *Consumer[TTx]) errClosed() error {
	if c.closed.Load() {
		return fmt.Errorf("consumer %q: %w", c.cfg.Name, ErrClosed)
	}
	return nil
}
