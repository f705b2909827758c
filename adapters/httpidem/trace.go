package httpidem

import (
	"context"
	"net/http"
	"time"

	"github.com/txonce/txonce/internal/hooks"
	"github.com/txonce/txonce/observe"
)

// Event is the argument of a Trace hook.
type Event struct {
	Guard    string        // Config.Name
	Request  *http.Request // as it arrived; its body has been read
	Decision Decision      // empty in Start
	Status   int           // of the answer; 0 in Start and Panicked
	Reason   Reason        // if the answer is not a handler's response
	Err      error         // the cause, if something went wrong
	Took     time.Duration // since the request arrived

	// Key is the request's identity as the database has it: 64 hexadecimal digits, which nobody can compute without the
	// secret. "txonce explain NAME KEY" explains it. Empty: the request has no key, or was refused before it was known.
	Key string

	// Waited is how long the request waited for another one with its key.
	Waited time.Duration

	// Age of Replayed is about how long ago the first request was completed, by this machine's clock. It is wrong by
	// the difference if Config.Window was changed since.
	Age time.Duration

	// InDoubt says that a COMMIT of this request got no answer. If the Decision is First, Replayed or Recorded, the
	// outcome is known since; otherwise the client's repeat decides.
	InDoubt bool
}

// Trace has a hook for each outcome of a request. Exactly one hook besides Start is called for each request that Wrap
// does not pass on as it is, before the answer is sent. Nil hooks are not called. Hooks run on the request's goroutine
// and must be safe for concurrent use.
type Trace struct {
	// Start is called when a request arrives. The handler, its Store and the other hooks get the ctx that it returns;
	// nil: that which it got.
	Start func(ctx context.Context, e Event) context.Context

	Committed func(ctx context.Context, e Event) // the handler's work is committed, with its response
	Recorded  func(ctx context.Context, e Event) // the handler's work is rolled back, and its response is stored
	// the handler's work is rolled back, and its response goes only to this client
	Unstored func(ctx context.Context, e Event)
	// an earlier request, or an earlier attempt whose COMMIT got no answer, was completed; the client gets its response
	Replayed func(ctx context.Context, e Event)
	Refused  func(ctx context.Context, e Event) // the answer has a Reason
	Panicked func(ctx context.Context, e Event) // the handler panicked, and its work is rolled back

	// WentBack is called, apart from any request, after the database has lost what it had committed for requests that
	// this Guard has answered; see docs/operations.md.
	WentBack func(ctx context.Context, l observe.Loss)
}

// Then returns a Trace that calls the hooks of t and then those of u. Both may be nil.
func (t *Trace) Then(u *Trace) *Trace {
	var first, second Trace
	if t != nil {
		first = *t
	}
	if u != nil {
		second = *u
	}
	return &Trace{
		Start:     hooks.ThenStart(first.Start, second.Start),
		Committed: hooks.Then(first.Committed, second.Committed),
		Recorded:  hooks.Then(first.Recorded, second.Recorded),
		Unstored:  hooks.Then(first.Unstored, second.Unstored),
		Replayed:  hooks.Then(first.Replayed, second.Replayed),
		Refused:   hooks.Then(first.Refused, second.Refused),
		Panicked:  hooks.Then(first.Panicked, second.Panicked),
		WentBack:  hooks.Then(first.WentBack, second.WentBack),
	}
}

// complete returns a copy of t without nil hooks, and whose hooks are safe to call.
func (t *Trace) complete(p *hooks.Panics) *Trace {
	var all Trace
	if t != nil {
		all = *t
	}
	hooks.Complete(p, map[string]*func(context.Context, Event){
		"Committed": &all.Committed, "Recorded": &all.Recorded, "Unstored": &all.Unstored, "Replayed": &all.Replayed,
		"Refused": &all.Refused, "Panicked": &all.Panicked,
	})
	hooks.Complete(p, map[string]*func(context.Context, observe.Loss){"WentBack": &all.WentBack})
	start := all.Start
	all.Start = func(ctx context.Context, e Event) context.Context {
		started := ctx
		if start != nil {
			p.Call(ctx, "Start", func() {
				if own := start(ctx, e); own != nil {
					started = own
				}
			})
		}
		return started
	}
	return &all
}
