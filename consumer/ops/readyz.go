package ops

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/txonce/txonce/observe"
)

// Reason is why a process is not ready.
type Reason struct {
	Name  string `json:"name"`            // of the consumer or relay, or the queue, topic or group of the subscriber
	Topic string `json:"topic,omitempty"` // of a relay: the topic that is at fault

	// Subscriber tells the subscribers of one queue or group in this process apart. It counts from 1, in the order of
	// SourceTrace. 0: there is only one.
	Subscriber int `json:"subscriber,omitempty"`

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
	name := r.Name
	if r.Subscriber > 0 {
		name += fmt.Sprintf(" (subscriber %d)", r.Subscriber)
	}
	text := fmt.Sprintf("%s: %s since %s", name, what, r.Since.UTC().Format(time.RFC3339))
	if r.Error != "" {
		text += ": " + strings.ReplaceAll(r.Error, "\n", " ")
	}
	return text
}

// Livez returns a handler that always answers 200. It never asks the database, so an orchestrator does not restart all
// workers because the database is away.
func (h *Health) Livez() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		plain(w, http.StatusOK, "alive\n")
	})
}

// Readyz returns a handler that answers 200 if the process is ready: its subscribers are subscribed, and nothing is
// paused. Otherwise it answers 503 with the reasons, as text or, if the request accepts application/json, as JSON. It
// never asks the database. Errors in the reasons may name hosts: do not serve it to strangers.
//
// A pause ends when a message is tried and works. So a load balancer that sends messages, such as webhooks, must not
// follow Readyz: after a pause it would send none, and the process would never be ready again. Let it follow Livez.
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
