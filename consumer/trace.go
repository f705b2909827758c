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
	Claimed    func(ctx context.Context, e Event) // the message is new; its handler runs next, or after those of earlier messages in the same transaction
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

type traceKey struct{}

// WithTrace returns a ctx under which Process, ProcessBatch and Replay also call the hooks of t, after those of Config.Trace. It is
// for callers that want to know what happened to their own message, such as adapters/webhook: nil as the answer of Process means
// that the message was committed now, or before, or is parked. The hook Resumed is not called. A t that ctx has already is
// replaced.
func WithTrace(ctx context.Context, t *Trace) context.Context {
	return context.WithValue(ctx, traceKey{}, t)
}

func contextTrace(ctx context.Context) *Trace {
	t, _ := ctx.Value(traceKey{}).(*Trace)
	return t
}

// and returns a Trace that calls the hooks of t and then those of u, which may be nil.
func (t *Trace) and(u *Trace) *Trace {
	if u == nil {
		return t
	}
	both := *t
	second := u.hooks()
	for i, hook := range both.hooks() {
		if before, after := *hook, *second[i]; after != nil {
			*hook = func(ctx context.Context, e Event) {
				before(ctx, e)
				after(ctx, e)
			}
		}
	}
	return &both
}

func (t *Trace) hooks() []*func(context.Context, Event) {
	return []*func(context.Context, Event){
		&t.Claimed, &t.Duplicate, &t.Mismatch, &t.Unprovable, &t.InFlight,
		&t.Committed, &t.Retried, &t.Parked, &t.Paused, &t.Resumed,
	}
}

// complete returns a copy of t without nil hooks.
func (t *Trace) complete() *Trace {
	var all Trace
	if t != nil {
		all = *t
	}
	for _, hook := range all.hooks() {
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
