package httpidem

import (
	"context"
	"net/http"
	"time"

	"github.com/txonce/txonce/internal/hooks"
)

// Event is the argument of a Trace hook.
type Event struct {
	Guard   string        // Config.Name
	Request *http.Request // as it arrived; its body has been read
	Status  int           // of the answer
	Reason  Reason        // if the answer is not a handler's response
	Err     error         // the cause, if something went wrong
	Took    time.Duration // since the request arrived
}

// Trace has a hook for each outcome of a request. Exactly one hook is called for each request that Wrap does not pass
// on as it is, before the answer is sent. Nil hooks are not called. Hooks run on the request's goroutine and must be
// safe for concurrent use. A handler that panics calls none.
type Trace struct {
	Committed func(ctx context.Context, e Event) // the handler's work is committed, with its response
	Recorded  func(ctx context.Context, e Event) // the handler's work is rolled back, and its response is stored
	// the handler's work is rolled back, and its response goes only to this client
	Unstored func(ctx context.Context, e Event)
	// an earlier request, or an earlier attempt whose COMMIT got no answer, was completed; the client gets its response
	Replayed func(ctx context.Context, e Event)
	Refused  func(ctx context.Context, e Event) // the answer has a Reason
}

// complete returns a copy of t without nil hooks, and whose hooks are safe to call.
func (t *Trace) complete(p *hooks.Panics) *Trace {
	var all Trace
	if t != nil {
		all = *t
	}
	hooks.Complete(p, map[string]*func(context.Context, Event){
		"Committed": &all.Committed, "Recorded": &all.Recorded, "Unstored": &all.Unstored, "Replayed": &all.Replayed,
		"Refused": &all.Refused,
	})
	return &all
}
