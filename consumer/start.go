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
)

// startWithin bounds one attempt to start, so that a database that swallows what it is sent does not go unmentioned.
const startWithin = 30 * time.Second

// Start checks the store and registers the consumer with it, where the store is a dedup.Registrar. An error names what
// would make every message fail, and what only a person can change: a missing schema, settings that forget commits, a user
// whom the database refuses. What passes by itself is waited out until ctx ends, with Config.Backoff between two attempts: a
// database that is away, as in a rolling restart, or that is too busy to answer. It is logged when it begins, when it
// changes and when it is over.
//
// Where the store is a dedup.SourceRegistrar, Start also compares the sources that subscribers added with those that any
// process recorded for this name before. It fails with dedup.ErrNameTaken where they have none in common: another service, or
// another queue, uses the name.
//
// Start does its work once, however often it is called, and until it has succeeded the first message does it too; after
// an error it may be called again.
func (c *Consumer[TTx]) Start(ctx context.Context) error {
	since, said := time.Now(), ""
	for attempt := 1; ; attempt++ {
		limited, cancel := context.WithTimeout(ctx, startWithin)
		err := c.register(limited)
		late := limited.Err() != nil
		cancel()
		switch {
		case err == nil:
			if said != "" {
				c.cfg.Logger.InfoContext(ctx, "consumer goes on: the database answers", "consumer", c.cfg.Name,
					"waited", time.Since(since).Round(time.Millisecond))
			}
			return nil
		case ctx.Err() != nil, !late && c.final(err):
			return err
		}
		if sight := withoutNumbers(err); sight != said {
			said = sight
			c.cfg.Logger.ErrorContext(ctx, "consumer does not start yet: the database is at fault; it tries again", "consumer", c.cfg.Name,
				"error", err)
		}
		timer := time.NewTimer(c.cfg.wait(attempt))
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return err
		}
	}
}

// final reports that waiting does not cure err. A missing schema is retryable where consumers run, since a migration may
// be under way; at start it is a deployment in the wrong order, which is to be seen at once.
func (c *Consumer[TTx]) final(err error) bool {
	return !c.cfg.Store.Retryable(err) || errors.Is(err, dedup.ErrSchema) || errors.Is(err, dedup.ErrAccess)
}

// withoutNumbers is what err says, but for ports, times and process ids, which differ in every attempt.
func withoutNumbers(err error) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsDigit(r) {
			return -1
		}
		return r
	}, err.Error())
}

// register is one attempt to start. It does nothing where one has succeeded.
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
	// Sources first: a start that is refused must not register its window, which may be a shorter one.
	if registrar, ok := c.cfg.Store.(dedup.SourceRegistrar); ok && len(sources) > 0 {
		if err := registrar.RegisterSources(ctx, c.cfg.Name, sources); err != nil {
			return fmt.Errorf("consumer %q: start: %w", c.cfg.Name, err)
		}
	}
	if c.registered {
		c.nowStarted(sources)
		return nil
	}
	if registrar, ok := c.cfg.Store.(dedup.Registrar); ok {
		if err := registrar.Register(ctx, c.cfg.Name, c.cfg.Window); err != nil {
			return fmt.Errorf("consumer %q: start: %w", c.cfg.Name, err)
		}
	}
	c.registered = true
	timeless, givenUp := "taken for new, also when keys were forgotten", "parked"
	if c.cfg.Untimed == dedup.Unprovable {
		timeless = "parked once keys were forgotten"
	}
	if c.lot == nil {
		givenUp = "rejected, as the store is no parking lot"
	}
	c.cfg.Logger.InfoContext(ctx, "consumer starts", "consumer", c.cfg.Name, "window", c.cfg.Window,
		"messages_without_time", timeless, "messages_given_up_on", givenUp)
	c.nowStarted(sources)
	return nil
}

// AddSource implements Sourced. Add all sources before Start or the first message: one that is added later has to wait for the
// database at the next message, and is refused then.
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

// nowStarted ends a start that has registered these sources, unless one was added meanwhile.
func (c *Consumer[TTx]) nowStarted(sources []string) {
	c.sourcesMu.Lock()
	defer c.sourcesMu.Unlock()
	c.started.Store(len(sources) == len(c.sources))
}
