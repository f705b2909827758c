package calls

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/dedup/driver"
	"github.com/txonce/txonce/outbox"
)

// Defaults of Config.
const (
	DefaultSettles     = time.Minute
	DefaultTimeout     = 5 * time.Second
	DefaultConcurrency = 16
)

// Store is a store of this module, such as a *pgxstore.Store.
type Store[TTx any] interface {
	dedup.Store[TTx]
	outbox.Writer[TTx]
	driver.CallStore[TTx]
}

// Config of Calls.
type Config[TTx any] struct {
	// Name is the topic of the calls' messages in the outbox, and the consumer of their claims. Idempotency keys are
	// derived from it, so it must never change while there are calls. Required.
	Name string

	// Store has the outbox. Required.
	Store Store[TTx]

	// Do makes the call. It must send c.IdempotencyKey with the request if the other system takes one, and the request
	// must end when ctx ends. What its error says:
	//
	//	nil                 the call has happened, with this result
	//	outbox.Permanent    the other system has refused the call for good, and it has not happened
	//	RetryAfter          the call has not happened, and may be tried after that time
	//	any other error     the outcome is not known; an *outbox.UnavailableError does not count as an attempt
	//
	// ErrorOf makes these errors from an HTTP response. Do must be safe for concurrent use. Required.
	Do func(ctx context.Context, c Call) (Result, error)

	// Find asks the other system whether the call has happened, by an ID that Do has sent. It returns false only if the
	// other system knows of no such call, and an error if that is not known. It may be asked before the first try.
	//
	// Defaults to none: calls whose outcome cannot be known are parked in doubt.
	Find func(ctx context.Context, c Call) (Result, bool, error)

	// Keeps is how long the other system remembers an idempotency key. A request with a known key must have no further
	// effect, and get the answer of the first. If the other system removes keys "after at least 24 hours", that is 24
	// hours.
	//
	// Defaults to 0: the other system has no idempotency keys. Then do not send the header Idempotency-Key: net/http
	// would take the request for one that it may repeat by itself when the connection breaks.
	Keeps time.Duration

	// Settles is how long after the end of a try its request may still arrive or take effect. Only after that time Find
	// is asked, and a call that it does not find has not happened. Without Find, the error of a call in doubt names that
	// time for the person who looks. It must be longer than any step of a clock.
	//
	// Defaults to DefaultSettles.
	Settles time.Duration

	// Done records the result in the transaction that settles the call. It runs once for each call, as far as its
	// transaction is concerned. When it fails, it runs again, with the same result and without another call. It may
	// enqueue. Required.
	Done func(ctx context.Context, tx TTx, c Call, r Result) error

	// Failed records that the other system has refused the call for good, in the transaction that settles the call.
	//
	// Defaults to none: a refused call is parked.
	Failed func(ctx context.Context, tx TTx, c Call, refusal error) error

	// Timeout limits each call of Do, Find, Done and Failed. relay.Config.PublishTimeout must be twice as long or
	// longer.
	//
	// Defaults to DefaultTimeout.
	Timeout time.Duration

	// Concurrency is how many calls are made at once in this process.
	//
	// Defaults to DefaultConcurrency.
	Concurrency int
}

func (cfg Config[TTx]) complete() (Config[TTx], error) {
	cfg.Settles = cmp.Or(cfg.Settles, DefaultSettles)
	cfg.Timeout = cmp.Or(cfg.Timeout, DefaultTimeout)
	cfg.Concurrency = cmp.Or(cfg.Concurrency, DefaultConcurrency)
	refuse := func(format string, args ...any) error { return fmt.Errorf("calls: Config."+format, args...) }
	topic := outbox.Message{Topic: cfg.Name}
	name := dedup.Key{Consumer: cfg.Name, ID: "-"}
	switch {
	case cfg.Name == "":
		return cfg, refuse("Name is required")
	case topic.Validate() != nil:
		return cfg, refuse("Name: %w", topic.Validate())
	case name.Validate() != nil:
		return cfg, refuse("Name: %w", name.Validate())
	case cfg.Store == nil:
		return cfg, refuse("Store is required")
	case cfg.Do == nil:
		return cfg, refuse("Do is required")
	case cfg.Done == nil:
		return cfg, refuse("Done is required")
	case cfg.Settles < 0:
		return cfg, refuse("Settles is %v: want more than 0", cfg.Settles)
	case cfg.Timeout < time.Millisecond:
		return cfg, refuse("Timeout is %v: want 1 ms or more", cfg.Timeout)
	case cfg.Concurrency < 0:
		return cfg, refuse("Concurrency is %d: want 1 or more", cfg.Concurrency)
	case cfg.Keeps < 0, cfg.Keeps > 0 && cfg.Keeps <= 2*cfg.rules().margin:
		return cfg, refuse("Keeps is %v: want more than twice Timeout + 2 * Settles, %v; or 0 if the other system does not remember keys for so long", cfg.Keeps, 2*cfg.rules().margin)
	}
	return cfg, nil
}

// window is how long the claim of a settled call is kept at least. A message that is older may have been settled
// before.
func (cfg *Config[TTx]) window() time.Duration { return dedup.DefaultWindow + cfg.Keeps }

// rules returns what decide needs. A request that begins before the end of Keeps less margin arrives while the key is
// remembered, also if a clock was set by Settles.
func (cfg *Config[TTx]) rules() rules {
	return rules{
		keeps: cfg.Keeps, margin: cfg.Timeout + 2*cfg.Settles, timeout: cfg.Timeout, settles: cfg.Settles,
		window: cfg.window(), find: cfg.Find != nil,
	}
}
