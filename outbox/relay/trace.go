package relay

import (
	"context"
	"time"

	"github.com/txonce/txonce/outbox"
)

// Event is the argument of Trace's hooks.
type Event struct {
	Relay   string         // Config.Name
	Topic   string         // of Resting: the topic that cools down; empty: the publisher does, with all its topics
	Message *outbox.Leased // of Deferred and Parked; must not be changed
	Err     error          // the failure, if there was one
	Count   int            // of Published and Returned: messages
	Took    time.Duration  // of Published: since they were leased; of Deferred and Resting: until the next try
	Age     time.Duration  // of Published: since the oldest was enqueued, between the database's clock and this process's
	Hold    outbox.Hold    // of Renewed
}

// Trace has hooks for metrics and spans. Nil hooks are not called. Hooks run on the relay's goroutines, several at a time: they
// must be quick and safe for concurrent use. Published, Deferred, Parked and Returned are called after Settle; when the lease is
// lost before, they are not called for those messages, which will be published again.
type Trace struct {
	Published   func(ctx context.Context, e Event) // confirmed by the broker; once for each batch
	Deferred    func(ctx context.Context, e Event) // failed; the message and its key are held back for Took
	Parked      func(ctx context.Context, e Event) // not tried again
	Returned    func(ctx context.Context, e Event) // leased, but not tried or of unknown outcome; once for each batch
	Resting     func(ctx context.Context, e Event) // a publisher is unavailable, or a topic is missing or denied: it cools down for Took
	Renewed     func(ctx context.Context, e Event) // the shards that the relay holds; every few seconds
	LeaseLost   func(ctx context.Context, e Event) // what was in flight may be published twice
	QueueFailed func(ctx context.Context, e Event) // the database failed; for each try
}

// trace calls one of the hooks of Config.Trace.
func (r *Relay) trace(ctx context.Context, hook func(context.Context, Event), e Event) {
	if hook != nil {
		e.Relay = r.cfg.Name
		hook(ctx, e)
	}
}
