package ops_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/txonce/txonce/consumer/driver"
	"github.com/txonce/txonce/consumer/ops"
	"github.com/txonce/txonce/observe"
)

func get(t *testing.T, h http.Handler, accept string) (status int, body string) {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil)
	r.Header.Set("Accept", accept)
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w.Code, w.Body.String()
}

func TestHealth(t *testing.T) {
	h := ops.NewHealth()
	want := func(what string, status int, parts ...string) {
		t.Helper()
		got, body := get(t, h.Readyz(), "")
		if got != status {
			t.Errorf("%s: %d %s", what, got, body)
		}
		for _, part := range parts {
			if !strings.Contains(body, part) {
				t.Errorf("%s: %q is missing in %q", what, part, body)
			}
		}
		if got, body := get(t, h.Livez(), ""); got != http.StatusOK || body != "alive\n" {
			t.Errorf("%s: livez answers %d %s", what, got, body)
		}
	}
	ctx, trace, source := context.Background(), h.Trace(), h.SourceTrace()
	want("nothing is expected", http.StatusOK, "ready")
	h.Expect("kafka", "billing")
	want("expected", http.StatusServiceUnavailable, "billing: not subscribed")
	at := driver.SourceEvent{System: "kafka", Source: "billing"}
	source.Subscribed(ctx, at)
	want("subscribed", http.StatusOK)
	down := observe.Pause{
		Name: "billing", Cause: observe.CauseDatabase, Err: errors.New("connection\nrefused"),
		Since: time.Now(),
	}
	trace.Paused(ctx, down)
	want("paused", http.StatusServiceUnavailable, "billing: paused (database)", "connection refused\n")
	budget := observe.Pause{Name: "billing", Cause: observe.CauseBudget, Since: time.Now()}
	trace.Paused(ctx, budget)
	trace.Resumed(ctx, down)
	want("one of two pauses is over", http.StatusServiceUnavailable, "paused (budget)")
	status, body := get(t, h.Readyz(), "application/json")
	var answer struct {
		Ready   bool
		Reasons []ops.Reason
	}
	if err := json.Unmarshal([]byte(body), &answer); err != nil || status != http.StatusServiceUnavailable ||
		answer.Ready || len(answer.Reasons) != 1 || answer.Reasons[0].Cause != observe.CauseBudget {
		t.Errorf("%d %s: %v", status, body, err)
	}
	trace.Resumed(ctx, budget)
	want("resumed", http.StatusOK)
	trace.Paused(ctx, down)
	h.Paused(ctx, down) // a relay of the same name
	h.Resumed(ctx, down)
	want("one of two of the same name is over", http.StatusServiceUnavailable, "paused (database)")
	trace.Resumed(ctx, down)
	want("both are over", http.StatusOK)
	at.Err = errors.New("the group refuses this member")
	source.Unsubscribed(ctx, at)
	want("unsubscribed", http.StatusServiceUnavailable, "not subscribed", "refuses this member")
}

// One of two subscribers of a queue does not answer for the other.
func TestHealthOfTwoSubscribers(t *testing.T) {
	h, ctx, at := ops.NewHealth(), context.Background(), driver.SourceEvent{System: "aws_sqs", Source: "orders"}
	want := func(what string, reasons ...string) {
		t.Helper()
		got := h.Reasons()
		if len(got) != len(reasons) {
			t.Fatalf("%s: %v, want %d reasons", what, got, len(reasons))
		}
		for i, r := range got {
			if !strings.HasPrefix(r.String(), reasons[i]+" since ") {
				t.Errorf("%s: reason %d is %q, want %s", what, i, r, reasons[i])
			}
		}
	}
	h.Expect(at.System, at.Source)
	h.Expect(at.System, at.Source)
	one, two := h.SourceTrace(), h.SourceTrace()
	one.Subscribed(ctx, at)
	one.Subscribed(ctx, at) // it has connected again
	want("one of two", "orders: not subscribed")
	two.Subscribed(ctx, at)
	want("both")
	one.Unsubscribed(ctx, at)
	two.Subscribed(ctx, at)
	want("the first one has ended", "orders (subscriber 1): not subscribed")
	one.Subscribed(ctx, at)
	two.Paused(ctx, observe.Pause{Name: at.Source, Cause: observe.CauseBroker})
	want("the second one is paused", "orders (subscriber 2): paused (broker)")
	one.Resumed(ctx, observe.Pause{Name: at.Source, Cause: observe.CauseBroker})
	want("the first one resumes", "orders (subscriber 2): paused (broker)")
	two.Resumed(ctx, observe.Pause{Name: at.Source, Cause: observe.CauseBroker})
	want("the second one resumes")
}

func TestHideKeys(t *testing.T) {
	if got := (ops.HideKeys{}).Key("ann@example.com"); got != "ann@example.com" {
		t.Error(got)
	}
	h := ops.HideKeys{Secret: []byte("secret")}
	if got := h.Key("ann@example.com"); len(got) != 16 || got != h.Key("ann@example.com") ||
		got == (ops.HideKeys{Secret: []byte("other")}).Key("ann@example.com") {
		t.Error(got)
	}
}
