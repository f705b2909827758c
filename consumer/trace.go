package consumer

import (
	"context"
	"time"
)

// Event is what a Trace hook is told.
type Event struct {
	Consumer string
	Message  *Message      // nil in Paused, when no single message is concerned, and in Resumed
	Err      error         // why, where something went wrong
	Reason   Reason        // of Parked
	Took     time.Duration // since processing of the message or its batch began; in Paused and Retried: until the next attempt; in Resumed: since the first Paused

	// Uncounted says of Retried and InFlight that Message.Attempt stays as it is: see RetryError.Uncounted.
	Uncounted bool
}

// Trace is told what becomes of messages. Nil hooks are left out. Hooks run on the processing goroutine, several at a
// time: they must be quick and safe for concurrent use. Claimed, Duplicate, Mismatch and Unprovable tell verdicts
// within a transaction that may still roll back; Committed, Parked and Retried tell what became final.
type Trace struct {
	Claimed    func(ctx context.Context, e Event) // new; its handler runs next
	Duplicate  func(ctx context.Context, e Event) // processed before; acknowledged without running
	Mismatch   func(ctx context.Context, e Event) // key was used for other content
	Unprovable func(ctx context.Context, e Event) // older than what was forgotten
	InFlight   func(ctx context.Context, e Event) // another transaction holds its key; deferred
	Committed  func(ctx context.Context, e Event) // its effects are committed
	Retried    func(ctx context.Context, e Event) // rolled back; delivered again after Took
	Parked     func(ctx context.Context, e Event) // in the parking lot
	Paused     func(ctx context.Context, e Event) // the database is at fault, or the parking limit is spent (ErrParkLimit); again and again while it is
	Resumed    func(ctx context.Context, e Event) // a pause is over; Err is what it was for, and ErrParkLimit where that limit was spent
}

func (t *Trace) emit(ctx context.Context, hook func(*Trace) func(context.Context, Event), e Event) {
	if t == nil {
		return
	}
	if f := hook(t); f != nil {
		f(ctx, e)
	}
}

func onClaimed(t *Trace) func(context.Context, Event)    { return t.Claimed }
func onDuplicate(t *Trace) func(context.Context, Event)  { return t.Duplicate }
func onMismatch(t *Trace) func(context.Context, Event)   { return t.Mismatch }
func onUnprovable(t *Trace) func(context.Context, Event) { return t.Unprovable }
func onInFlight(t *Trace) func(context.Context, Event)   { return t.InFlight }
func onCommitted(t *Trace) func(context.Context, Event)  { return t.Committed }
func onRetried(t *Trace) func(context.Context, Event)    { return t.Retried }
func onParked(t *Trace) func(context.Context, Event)     { return t.Parked }
func onPaused(t *Trace) func(context.Context, Event)     { return t.Paused }
func onResumed(t *Trace) func(context.Context, Event)    { return t.Resumed }
