package outbox

import (
	"context"
	"time"
)

// Event is what a Trace hook is told.
type Event struct {
	Relay   string        // Config.Name
	Topic   string        // of Resting: the topic that rests; empty: the publisher does, with all its topics
	Message *Leased       // of Deferred and Parked; not to be changed
	Err     error         // why, where something went wrong
	Count   int           // of Published and Returned: messages
	Took    time.Duration // of Published: since they were leased; of Deferred and Resting: until the next try
	Age     time.Duration // of Published: since the oldest was enqueued, between the database's clock and this process's
	Hold    Hold          // of Renewed
}

// Trace is told what becomes of messages. Nil hooks are left out. Hooks run on the relay's goroutines, several at a time:
// they must be quick and safe for concurrent use. Published, Deferred, Parked and Returned tell what is settled in the
// outbox; when a lease is lost before that, nothing is told of its messages, and they are published again.
type Trace struct {
	Published   func(ctx context.Context, e Event) // confirmed by the broker; once for each batch
	Deferred    func(ctx context.Context, e Event) // failed; it and its key are held back for Took
	Parked      func(ctx context.Context, e Event) // given up on
	Returned    func(ctx context.Context, e Event) // leased, but not tried or of unknown outcome; once for each batch
	Resting     func(ctx context.Context, e Event) // a publisher is unavailable, or a topic is missing or denied, and gets nothing for Took
	Renewed     func(ctx context.Context, e Event) // the relay's share; every few seconds
	LeaseLost   func(ctx context.Context, e Event) // what was in flight may be published twice
	QueueFailed func(ctx context.Context, e Event) // the outbox cannot be reached; for each try
}

func (r *Relay) trace(ctx context.Context, hook func(*Trace) func(context.Context, Event), e Event) {
	if r.cfg.Trace == nil {
		return
	}
	if f := hook(r.cfg.Trace); f != nil {
		e.Relay = r.cfg.Name
		f(ctx, e)
	}
}

func onPublished(t *Trace) func(context.Context, Event)   { return t.Published }
func onDeferred(t *Trace) func(context.Context, Event)    { return t.Deferred }
func onParked(t *Trace) func(context.Context, Event)      { return t.Parked }
func onReturned(t *Trace) func(context.Context, Event)    { return t.Returned }
func onResting(t *Trace) func(context.Context, Event)     { return t.Resting }
func onRenewed(t *Trace) func(context.Context, Event)     { return t.Renewed }
func onLeaseLost(t *Trace) func(context.Context, Event)   { return t.LeaseLost }
func onQueueFailed(t *Trace) func(context.Context, Event) { return t.QueueFailed }
