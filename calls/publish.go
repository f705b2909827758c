package calls

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/txonce/txonce/outbox"
	outboxdriver "github.com/txonce/txonce/outbox/driver"
)

// Publish implements outbox.Publisher. A relay calls PublishLeased instead.
func (c *Calls[TTx]) Publish(_ context.Context, msgs []outbox.Message) []error {
	errs := make([]error, len(msgs))
	for i := range errs {
		errs[i] = &outbox.TopicError{Err: fmt.Errorf("calls: %s: Publish was called instead of PublishLeased: a Publisher that wraps Calls must have PublishLeased and NeedsTime too", c.cfg.Name)}
	}
	return errs
}

// NeedsTime implements driver.LeasedPublisher.
func (c *Calls[TTx]) NeedsTime() time.Duration { return 2 * c.cfg.Timeout }

// PublishLeased implements driver.LeasedPublisher. It makes several calls at once, and starts none for which there is
// no time left.
func (c *Calls[TTx]) PublishLeased(ctx context.Context, msgs []outboxdriver.Leased) []error {
	errs := make([]error, len(msgs))
	for i := range errs {
		errs[i] = outboxdriver.ErrNotTried
	}
	if err := c.register(ctx); err != nil {
		for i := range errs {
			errs[i] = c.storeFailed("register", err)
		}
		return errs
	}
	starting, cancel := context.WithCancel(ctx)
	if at, ok := ctx.Deadline(); ok {
		starting, cancel = context.WithDeadline(ctx, at.Add(-c.cfg.Timeout))
	}
	defer cancel()
	var running sync.WaitGroup
	for i, m := range msgs {
		if !c.enter(starting) {
			break
		}
		running.Go(func() {
			defer func() { <-c.slots }()
			errs[i] = c.publish(ctx, m)
		})
	}
	running.Wait()
	return errs
}

// enter waits for a free slot.
func (c *Calls[TTx]) enter(ctx context.Context) bool {
	select {
	case <-ctx.Done():
		return false
	case c.slots <- struct{}{}:
	}
	if ctx.Err() != nil {
		<-c.slots
		return false
	}
	return true
}

// publish takes one call a step further.
func (c *Calls[TTx]) publish(ctx context.Context, m outboxdriver.Leased) error {
	if m.Topic != c.cfg.Name {
		return &outbox.TopicError{Err: fmt.Errorf("calls: a message of topic %q came to the calls of %q: name the topic in relay.Config.Publishers", m.Topic, c.cfg.Name)}
	}
	call, read := c.callOf(m), time.Now()
	known, err := c.keeper.Call(ctx, call.key)
	if err != nil {
		return c.storeFailed("read what is known of the call", err)
	}
	db := c.sightings.saw(known, c.cfg.rules())
	a := &attempt[TTx]{calls: c, ctx: ctx, call: call, known: known, database: db, read: read}
	switch step, until := decide(known, db, call.due, call.fingerprint, c.cfg.rules()); step {
	case already:
		return nil
	case mismatch:
		return outbox.Permanent(fmt.Errorf("%w: %s %q", ErrMismatch, c.cfg.Name, call.ID))
	case record:
		return a.done(known.Result)
	case do:
		return a.do(false)
	case doOnly:
		return a.do(true)
	case ask:
		return a.ask(nil)
	case wait:
		return a.wait(until)
	case inDoubt:
	}
	return outbox.Permanent(&outbox.InDoubtError{Err: a.doubt("the other system no longer remembers the idempotency key, if it had one")})
}

// storeFailed returns the answer for a message when the store fails: it is not the message's fault.
func (c *Calls[TTx]) storeFailed(what string, err error) error {
	return &outbox.UnavailableError{Err: fmt.Errorf("calls: %s: %s: %w", c.cfg.Name, what, err)}
}
