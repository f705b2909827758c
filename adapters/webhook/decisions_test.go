package webhook_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/txonce/txonce/adapters/webhook"
	"github.com/txonce/txonce/consumer"
)

// Each event has one line with what became of it, and a delivery of a stranger has one.
func TestLogDecisions(t *testing.T) {
	var log bytes.Buffer
	hooks := webhook.LogDecisions(slog.New(slog.NewJSONHandler(&log, nil)))
	event := webhook.TraceEvent{Source: "stripe", Message: &consumer.Message{
		ID: "evt_1", Tenant: "stripe/live", Topic: "paid", Payload: []byte("canary"),
		Headers: map[string]string{"h": "canary"},
	}, Err: errors.New("canary")}
	dropped := event
	dropped.Drop = "test notification"
	hooks.Accepted(t.Context(), event)
	hooks.Duplicate(t.Context(), event)
	hooks.Parked(t.Context(), event)
	hooks.Deferred(t.Context(), event)
	hooks.Rejected(t.Context(), event)
	hooks.Dropped(t.Context(), dropped)
	hooks.Refused(t.Context(), webhook.TraceEvent{Source: "stripe", Refusal: webhook.BadSignature, Status: http.StatusBadRequest})
	var got []string
	for line := range strings.Lines(log.String()) {
		var l struct{ Source, Decision, ID, Reason string }
		if err := json.Unmarshal([]byte(line), &l); err != nil || l.Source != "stripe" {
			t.Errorf("%v: %s", err, line)
		}
		got = append(got, l.Decision+" "+l.ID+" "+l.Reason)
	}
	if diff := cmp.Diff([]string{
		"new evt_1 ", "duplicate evt_1 ", "parked evt_1 ", "deferred evt_1 ", "rejected evt_1 ",
		"dropped evt_1 test notification", "refused  bad-signature",
	}, got); diff != "" {
		t.Errorf("lines (-want +got):\n%s", diff)
	}
	if strings.Contains(log.String(), "canary") {
		t.Errorf("a line has what the sender sent:\n%s", &log)
	}
}

// The Processor gets the ctx of Start, and a Start that panics changes nothing.
func TestStartOfTrace(t *testing.T) {
	type key struct{}
	for _, panics := range []bool{false, true} {
		var seen any
		hooks := &webhook.Trace{
			Start: func(ctx context.Context, e webhook.TraceEvent) context.Context {
				if panics {
					panic("a bug")
				}
				return context.WithValue(ctx, key{}, e.Source)
			},
			Answered: func(ctx context.Context, _ webhook.TraceEvent) { seen = ctx.Value(key{}) },
		}
		s := newShop()
		status := s.status(t, newReceiver(t, webhook.Config{Verifier: s, Processor: always(nil), Trace: hooks}),
			shopEvent{ID: "1", Type: "paid"})
		if want := map[bool]any{false: "shop", true: nil}[panics]; seen != want || status != http.StatusOK {
			t.Errorf("Start panics %t: %v, status %d; want %v", panics, seen, status, want)
		}
	}
}
