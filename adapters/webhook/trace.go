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
	// Start is called when a delivery arrives. The Processor and the other hooks get the ctx that it returns; nil: that
	// which it got.
	Start func(ctx context.Context, e TraceEvent) context.Context

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
		Refused:   hooks.Then(first.Refused, second.Refused),
		Dropped:   hooks.Then(first.Dropped, second.Dropped),
		Accepted:  hooks.Then(first.Accepted, second.Accepted),
		Duplicate: hooks.Then(first.Duplicate, second.Duplicate),
		Parked:    hooks.Then(first.Parked, second.Parked),
		Deferred:  hooks.Then(first.Deferred, second.Deferred),
		Rejected:  hooks.Then(first.Rejected, second.Rejected),
		Late:      hooks.Then(first.Late, second.Late),
		Answered:  hooks.Then(first.Answered, second.Answered),
	}
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
	start := all.Start
	all.Start = func(ctx context.Context, e TraceEvent) context.Context {
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
