package ops

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/consumer/driver"
	"github.com/txonce/txonce/observe"
)

// Health knows whether a process is ready. It learns that from the hooks of consumers, subscribers and relays. Make one
// with NewHealth. It is safe for concurrent use.
type Health struct {
	mu       sync.Mutex
	traces   int                 // calls of SourceTrace
	expected map[source][]Reason // calls of Expect that no subscriber has answered; their source has no trace
	sources  map[source]*Reason  // nil value: subscribed
	pauses   map[pauseKey]*pausing
}

// source is a subscriber. Two of one queue differ in trace, the number of their SourceTrace.
type source struct {
	trace        int
	system, name string
}

type pauseKey struct {
	trace       int // 0: of a consumer or a relay
	name, topic string
	cause       observe.Cause
}

// pausing counts the pauses with the same name, topic and cause: a consumer and a relay may have the same name.
type pausing struct {
	Reason
	pauses int
}

// NewHealth returns a Health. The process is ready at once unless it has to Expect a subscriber.
func NewHealth() *Health {
	return &Health{expected: map[source][]Reason{}, sources: map[source]*Reason{}, pauses: map[pauseKey]*pausing{}}
}

// Expect makes the process ready only after one more subscriber has subscribed to name: a queue, or the consumer group
// of Kafka. Call it once for each Subscriber. system is "kafka", "aws_sqs" or "rabbitmq".
func (h *Health) Expect(system, name string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	of := source{system: system, name: name}
	h.expected[of] = append(h.expected[of], Reason{Name: name, Since: time.Now()})
}

// Trace returns the hooks for consumer.Config.Trace. Join it with your own: h.Trace().Then(own).
func (h *Health) Trace() *consumer.Trace {
	return &consumer.Trace{Paused: h.Paused, Resumed: h.Resumed}
}

// SourceTrace returns the hooks for the SubscriberConfig of an adapter. Join it with your own:
// h.SourceTrace().Then(own). Call it for each Subscriber: two Subscribers of one queue that share a SourceTrace count
// as one, which is ready as soon as one of them is.
func (h *Health) SourceTrace() *driver.SourceTrace {
	h.mu.Lock()
	h.traces++
	trace := h.traces
	h.mu.Unlock()
	return &driver.SourceTrace{
		Paused:     func(_ context.Context, p observe.Pause) { h.paused(trace, p) },
		Resumed:    func(_ context.Context, p observe.Pause) { h.resumed(trace, p) },
		Subscribed: func(_ context.Context, e driver.SourceEvent) { h.set(trace, e, nil) },
		Unsubscribed: func(_ context.Context, e driver.SourceEvent) {
			r := &Reason{Name: e.Source, Since: time.Now()}
			if e.Err != nil {
				r.Error = e.Err.Error()
			}
			h.set(trace, e, r)
		},
	}
}

// set records the state of a subscriber. Its first event answers one call of Expect.
func (h *Health) set(trace int, e driver.SourceEvent, r *Reason) {
	h.mu.Lock()
	defer h.mu.Unlock()
	at, of := source{trace, e.System, e.Source}, source{system: e.System, name: e.Source}
	if _, known := h.sources[at]; !known && len(h.expected[of]) > 0 {
		h.expected[of] = h.expected[of][1:]
	}
	h.sources[at] = r
}

// Paused is a hook for relay.Trace.
func (h *Health) Paused(_ context.Context, p observe.Pause) { h.paused(0, p) }

// Resumed is a hook for relay.Trace.
func (h *Health) Resumed(_ context.Context, p observe.Pause) { h.resumed(0, p) }

func (h *Health) paused(trace int, p observe.Pause) {
	r := Reason{Name: p.Name, Topic: p.Topic, Cause: p.Cause, Since: p.Since}
	if p.Err != nil {
		r.Error = p.Err.Error()
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	key := pauseKey{trace, p.Name, p.Topic, p.Cause}
	if h.pauses[key] == nil {
		h.pauses[key] = &pausing{Reason: r}
	}
	h.pauses[key].pauses++
}

func (h *Health) resumed(trace int, p observe.Pause) {
	h.mu.Lock()
	defer h.mu.Unlock()
	key := pauseKey{trace, p.Name, p.Topic, p.Cause}
	if p := h.pauses[key]; p != nil {
		if p.pauses--; p.pauses == 0 {
			delete(h.pauses, key)
		}
	}
}

// Reasons returns why the process is not ready, oldest first. It is empty if the process is ready.
func (h *Health) Reasons() []Reason {
	reasons := []Reason{}
	h.mu.Lock()
	for _, expected := range h.expected {
		reasons = append(reasons, expected...)
	}
	for at, r := range h.sources {
		if r != nil {
			reasons = append(reasons, h.numbered(*r, at.trace))
		}
	}
	for at, p := range h.pauses {
		reasons = append(reasons, h.numbered(p.Reason, at.trace))
	}
	h.mu.Unlock()
	slices.SortFunc(reasons, func(a, b Reason) int {
		return cmp.Or(a.Since.Compare(b.Since), cmp.Compare(a.Name, b.Name), cmp.Compare(a.Subscriber, b.Subscriber),
			cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.Cause, b.Cause))
	})
	return reasons
}

// numbered sets r.Subscriber if several subscribers have that name. h.mu is held.
func (h *Health) numbered(r Reason, trace int) Reason {
	before, after := 0, 0
	for s := range h.sources {
		switch {
		case s.name != r.Name || trace == 0:
		case s.trace < trace:
			before++
		case s.trace > trace:
			after++
		}
	}
	if before+after > 0 {
		r.Subscriber = before + 1
	}
	return r
}
