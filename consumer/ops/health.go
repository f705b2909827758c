package ops

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/observe"
)

// Health knows whether a process is ready. It learns that from the hooks of consumers, subscribers and relays. Make one with NewHealth. It
// is safe for concurrent use.
type Health struct {
	mu      sync.Mutex
	sources map[source]*Reason // nil value: subscribed
	pauses  map[paused]*pausing
}

type source struct{ system, name string }

type paused struct {
	name, topic string
	cause       observe.Cause
}

// pausing counts the pauses with the same name, topic and cause: a consumer and a relay may have the same name.
type pausing struct {
	Reason
	pauses int
}

// Reason is why a process is not ready.
type Reason struct {
	Name  string        `json:"name"`            // of the consumer or relay, or the queue, topic or group of the subscriber
	Topic string        `json:"topic,omitempty"` // of a relay: the topic that is at fault
	Cause observe.Cause `json:"cause,omitempty"` // empty: the subscriber is not subscribed
	Since time.Time     `json:"since"`
	Error string        `json:"error,omitempty"`
}

// String returns the reason as one line of text.
func (r Reason) String() string {
	what := "not subscribed"
	if r.Cause != "" {
		what = "paused (" + string(r.Cause) + ")"
	}
	if r.Topic != "" {
		what += ", topic " + r.Topic
	}
	text := fmt.Sprintf("%s: %s since %s", r.Name, what, r.Since.UTC().Format(time.RFC3339))
	if r.Error != "" {
		text += ": " + strings.ReplaceAll(r.Error, "\n", " ")
	}
	return text
}

// NewHealth returns a Health. The process is ready at once unless it has to Expect a subscriber.
func NewHealth() *Health {
	return &Health{sources: map[source]*Reason{}, pauses: map[paused]*pausing{}}
}

// Expect makes the process ready only after a subscriber has subscribed to name: a queue, or the consumer group of Kafka. system is
// "kafka", "aws_sqs" or "rabbitmq".
func (h *Health) Expect(system, name string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if _, known := h.sources[source{system, name}]; !known {
		h.sources[source{system, name}] = &Reason{Name: name, Since: time.Now()}
	}
}

// Trace returns the hooks for consumer.Config.Trace. Join it with your own: h.Trace().Then(own).
func (h *Health) Trace() *consumer.Trace {
	return &consumer.Trace{Paused: h.Paused, Resumed: h.Resumed}
}

// SourceTrace returns the hooks for the SubscriberConfig of an adapter. Join it with your own: h.SourceTrace().Then(own).
func (h *Health) SourceTrace() *consumer.SourceTrace {
	return &consumer.SourceTrace{
		Paused: h.Paused, Resumed: h.Resumed,
		Subscribed: func(_ context.Context, e consumer.SourceEvent) {
			h.mu.Lock()
			defer h.mu.Unlock()
			h.sources[source{e.System, e.Source}] = nil
		},
		Unsubscribed: func(_ context.Context, e consumer.SourceEvent) {
			r := &Reason{Name: e.Source, Since: time.Now()}
			if e.Err != nil {
				r.Error = e.Err.Error()
			}
			h.mu.Lock()
			defer h.mu.Unlock()
			h.sources[source{e.System, e.Source}] = r
		},
	}
}

// Paused is a hook for relay.Trace.
func (h *Health) Paused(_ context.Context, p observe.Pause) {
	r := Reason{Name: p.Name, Topic: p.Topic, Cause: p.Cause, Since: p.Since}
	if p.Err != nil {
		r.Error = p.Err.Error()
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	key := paused{p.Name, p.Topic, p.Cause}
	if h.pauses[key] == nil {
		h.pauses[key] = &pausing{Reason: r}
	}
	h.pauses[key].pauses++
}

// Resumed is a hook for relay.Trace.
func (h *Health) Resumed(_ context.Context, p observe.Pause) {
	h.mu.Lock()
	defer h.mu.Unlock()
	key := paused{p.Name, p.Topic, p.Cause}
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
	for _, r := range h.sources {
		if r != nil {
			reasons = append(reasons, *r)
		}
	}
	for _, p := range h.pauses {
		reasons = append(reasons, p.Reason)
	}
	h.mu.Unlock()
	slices.SortFunc(reasons, func(a, b Reason) int {
		return cmp.Or(a.Since.Compare(b.Since), cmp.Compare(a.Name, b.Name), cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.Cause, b.Cause))
	})
	return reasons
}

// Livez returns a handler that always answers 200. It never asks the database, so an orchestrator does not restart all workers because
// the database is away.
func (h *Health) Livez() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		plain(w, http.StatusOK, "alive\n")
	})
}

// Readyz returns a handler that answers 200 if the process is ready: its subscribers are subscribed, and nothing is paused. Otherwise it
// answers 503 with the reasons, as text or, if the request accepts application/json, as JSON. It never asks the database. Errors in the
// reasons may name hosts: do not serve it to strangers.
//
// A pause ends when a message is tried and works. So a load balancer that sends messages, such as webhooks, must not follow Readyz: after a
// pause it would send none, and the process would never be ready again. Let it follow Livez.
func (h *Health) Readyz() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		reasons := h.Reasons()
		status := http.StatusOK
		if len(reasons) > 0 {
			status = http.StatusServiceUnavailable
		}
		if strings.Contains(r.Header.Get("Accept"), "application/json") {
			w.Header().Set("Cache-Control", "no-store")
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(status)
			_ = json.NewEncoder(w).Encode(struct {
				Ready   bool     `json:"ready"`
				Reasons []Reason `json:"reasons"`
			}{len(reasons) == 0, reasons})
			return
		}
		if len(reasons) == 0 {
			plain(w, status, "ready\n")
			return
		}
		var text strings.Builder
		text.WriteString("not ready\n")
		for _, reason := range reasons {
			text.WriteString(reason.String() + "\n")
		}
		plain(w, status, text.String())
	})
}

func plain(w http.ResponseWriter, status int, text string) {
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	_, _ = w.Write([]byte(text))
}
