// Package breaker rests a publisher whose broker is down, instead of letting every message wait for it to time out again.
//
// It is sony/gobreaker around whole Publish calls, with rests that grow. A call counts as failed when nothing of it was confirmed
// and the broker was to blame for something of it. What a broker refuses for now shows that it is there.
package breaker

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/sony/gobreaker/v2"

	"github.com/txonce/txonce/outbox"
)

// Config says when to rest, and for how long. The zero value of a field is its default.
type Config struct {
	Failures int           // calls in a row that fail before the first rest; defaults to 3
	Rest     time.Duration // the first rest, doubled each time that the call after it fails as well; defaults to 1 s
	MaxRest  time.Duration // the longest; defaults to 30 s
}

// WithDefaults returns c complete, or an error that names the field that is wrong.
func (c Config) WithDefaults() (Config, error) {
	switch {
	case c.Failures < 0:
		return c, fmt.Errorf("field Failures is %d; it must not be negative", c.Failures)
	case c.Rest < 0 || c.MaxRest < 0:
		return c, errors.New("fields Rest and MaxRest must not be negative")
	}
	if c.Failures == 0 {
		c.Failures = 3
	}
	if c.Rest == 0 {
		c.Rest = time.Second
	}
	if c.MaxRest == 0 {
		c.MaxRest = max(30*time.Second, c.Rest)
	}
	if c.MaxRest < c.Rest {
		return c, fmt.Errorf("field MaxRest is %v, less than Rest (%v)", c.MaxRest, c.Rest)
	}
	return c, nil
}

// Breaker stands before one publisher. It is safe for concurrent use.
type Breaker struct {
	cfg     Config
	circuit *gobreaker.CircuitBreaker[[]error]

	mu    sync.Mutex // may be taken inside circuit's lock, never around it
	rests int        // since it was last closed
	until time.Time  // of the rest
	why   error      // the last failure
}

// New returns a closed breaker. cfg is as Config.WithDefaults returns it.
func New(cfg Config) *Breaker {
	b := &Breaker{cfg: cfg}
	b.circuit = gobreaker.NewCircuitBreaker[[]error](gobreaker.Settings{
		// until is ours; by then the circuit must be ready for the next try, also when the clock says precisely until.
		Timeout:     cfg.Rest - 1,
		ReadyToTrip: func(counts gobreaker.Counts) bool { return counts.ConsecutiveFailures >= uint32(cfg.Failures) },
		IsExcluded:  func(err error) bool { return errors.Is(err, errInconclusive) },
		OnStateChange: func(_ string, _, to gobreaker.State) {
			b.mu.Lock()
			defer b.mu.Unlock()
			b.changed(to)
		},
	})
	return b
}

// changed begins a rest, or forgets about the last ones.
func (b *Breaker) changed(to gobreaker.State) {
	switch to {
	case gobreaker.StateOpen:
		rest := b.cfg.Rest
		for range b.rests {
			rest = min(2*rest, b.cfg.MaxRest)
		}
		b.rests++
		b.until = time.Now().Add(rest)
	case gobreaker.StateClosed:
		b.rests, b.until, b.why = 0, time.Time{}, nil
	case gobreaker.StateHalfOpen: // somebody tries
	}
}

var errInconclusive = errors.New("nothing was learned about the broker")

// Publish passes a call on to publish, or answers each message with an *outbox.UnavailableError at once. After a rest one
// call goes through, and the others wait for what becomes of it.
func (b *Breaker) Publish(ctx context.Context, msgs []outbox.Message, publish func(context.Context, []outbox.Message) []error) []error {
	if len(msgs) == 0 {
		return nil
	}
	if rest, why := b.resting(); rest > 0 {
		return rested(msgs, rest, why)
	}
	errs, err := b.circuit.Execute(func() ([]error, error) {
		began := time.Now()
		errs := publish(ctx, msgs)
		err := verdict(errs, time.Since(began))
		if err != nil && !errors.Is(err, errInconclusive) {
			b.mu.Lock()
			b.why = err
			b.mu.Unlock()
		}
		return errs, err
	})
	rest, why := b.resting()
	if errors.Is(err, gobreaker.ErrOpenState) || errors.Is(err, gobreaker.ErrTooManyRequests) {
		return rested(msgs, max(rest, b.cfg.Rest), why)
	}
	if rest > 0 { // this call was the last straw: it tells at once how long
		for i, err := range errs {
			if u := (*outbox.UnavailableError)(nil); errors.As(err, &u) && u.After == 0 {
				errs[i] = &outbox.UnavailableError{After: rest, Err: u.Err}
			}
		}
	}
	return errs
}

// resting returns how long the rest lasts yet, and the last failure.
func (b *Breaker) resting() (time.Duration, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return max(0, time.Until(b.until)), b.why
}

func rested(msgs []outbox.Message, rest time.Duration, why error) []error {
	if why == nil {
		why = errors.New("another call tries whether the broker is back")
	}
	err := &outbox.UnavailableError{After: rest, Err: fmt.Errorf("not tried, the publisher rests: %w", why)}
	errs := make([]error, len(msgs))
	for i := range errs {
		errs[i] = err
	}
	return errs
}

// patience is how long a broker may take to answer, before it is blamed for a deadline that has passed.
const patience = time.Second

// verdict is nil if the answers to a call show that the broker works, and errInconclusive if they show nothing.
func verdict(errs []error, took time.Duration) error {
	var blamed error
	conclusive := false
	for _, err := range errs {
		var u *outbox.UnavailableError
		switch {
		case err == nil:
			return nil
		case took < patience && errors.Is(err, context.DeadlineExceeded):
			// it had no chance
		case errors.As(err, &u):
			blamed = u.Err
		case !outbox.IsPermanent(err) && !errors.Is(err, outbox.ErrNotTried) && !errors.Is(err, context.Canceled):
			conclusive = true // the others may come from before anything was sent
		}
	}
	switch {
	case blamed != nil:
		return blamed
	case conclusive || len(errs) == 0: // no errs: all are confirmed
		return nil
	default:
		return errInconclusive
	}
}
