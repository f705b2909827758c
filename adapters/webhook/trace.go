package webhook

import (
	"context"
	"time"

	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/internal/hooks"
)

// TraceEvent is the argument of a Trace hook.
type TraceEvent struct {
	Source  string            // Source.Name
	Message *consumer.Message // the event; nil in Refused, Late and Answered
	Refusal Refusal           // the reason; set in Refused only
	Drop    string            // the reason; set in Dropped only
	Err     error             // the cause, if something went wrong
	Status  int               // of the response; set in Refused, Late and Answered
	Took    time.Duration     // since the request began
}

// Trace has hooks for metrics and spans. Nil hooks are not called. Each delivery has one Answered. Each event of a
// verified delivery has one of Dropped, Accepted, Duplicate, Parked, Deferred and Rejected, which may follow Answered
// if the handler took longer than the sender waits. Hooks run on the goroutines of the requests and handlers: they must
// be quick and safe for concurrent use. New copies the Trace.
type Trace struct {
	Refused   func(ctx context.Context, e TraceEvent) // the delivery is not from the sender, or cannot be read
	Dropped   func(ctx context.Context, e TraceEvent) // the Verifier dropped the event; it is acknowledged
	Accepted  func(ctx context.Context, e TraceEvent) // the event's effects are committed by this delivery
	Duplicate func(ctx context.Context, e TraceEvent) // they were committed before
	Parked    func(ctx context.Context, e TraceEvent) // the event is a dead letter: it needs a person
	Deferred  func(ctx context.Context, e TraceEvent) // nothing was committed; the sender delivers it again
	Rejected  func(ctx context.Context, e TraceEvent) // the Processor gave the event up and did not keep it
	Late      func(ctx context.Context, e TraceEvent) // the response was sent before the handlers returned
	Answered  func(ctx context.Context, e TraceEvent) // the response was sent, with any status
}

// complete returns a copy of t without nil hooks, and whose hooks are safe to call.
func (t *Trace) complete(p *hooks.Panics) *Trace {
	var all Trace
	if t != nil {
		all = *t
	}
	hooks.Complete(p, map[string]*func(context.Context, TraceEvent){
		"Refused": &all.Refused, "Dropped": &all.Dropped, "Accepted": &all.Accepted, "Duplicate": &all.Duplicate,
		"Parked":   &all.Parked,
		"Deferred": &all.Deferred, "Rejected": &all.Rejected, "Late": &all.Late, "Answered": &all.Answered,
	})
	return &all
}
