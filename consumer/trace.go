package consumer

import (
	"context"
	"time"
)

// Event is the argument of a Trace hook.
type Event struct {
	Consumer string
	Message  *Message // nil in Resumed, and in Paused when the pause is about more than one message
	Err      error    // the cause, if something went wrong
	Reason   Reason   // set in Parked only

	// Took is the time since processing of the message or its batch began. In Paused and Retried it is the time until
	// the next attempt, and in Resumed the time since the first Paused.
	Took time.Duration

	// Uncounted says in Retried and InFlight that Message.Attempt stays as it is; see RetryError.Uncounted.
	Uncounted bool
}

// Trace has a hook for each thing that may happen to a message. Nil hooks are not called. Hooks run on the goroutine
// that processes the message: they must be quick and safe for concurrent use. Claimed, Duplicate, Mismatch and Unprovable
// are called inside a transaction that may still roll back. Committed, Parked and Retried are final. New copies the
// Trace, so later changes of its fields have no effect.
type Trace struct {
	Claimed    func(ctx context.Context, e Event) // the message is new; its handler runs next
	Duplicate  func(ctx context.Context, e Event) // the message was processed before; it is acknowledged without running
	Mismatch   func(ctx context.Context, e Event) // the key was used for other content
	Unprovable func(ctx context.Context, e Event) // the message is older than the keys that the store remembers
	InFlight   func(ctx context.Context, e Event) // another transaction holds the key; the message is deferred
	Committed  func(ctx context.Context, e Event) // the effects are committed
	Retried    func(ctx context.Context, e Event) // nothing was committed; the message is delivered again after Took
	Parked     func(ctx context.Context, e Event) // the message is a dead letter
	Paused     func(ctx context.Context, e Event) // the database failed, or the parking limit is spent (ErrParkLimit); repeated during a pause
	Resumed    func(ctx context.Context, e Event) // a pause is over; Err is its cause
}

// complete returns a copy of t without nil hooks.
func (t *Trace) complete() *Trace {
	var all Trace
	if t != nil {
		all = *t
	}
	for _, hook := range []*func(context.Context, Event){
		&all.Claimed, &all.Duplicate, &all.Mismatch, &all.Unprovable, &all.InFlight,
		&all.Committed, &all.Retried, &all.Parked, &all.Paused, &all.Resumed,
	} {
		if *hook == nil {
			*hook = func(context.Context, Event) {}
		}
	}
	return &all
}

// emit calls hook with e, and fills in the consumer's name.
func (c *Consumer[TTx]) emit(ctx context.Context, hook func(context.Context, Event), e Event) {
	e.Consumer = c.cfg.Name
	hook(ctx, e)
}
