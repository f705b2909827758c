package telemetry_test

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/otel/trace"

	"github.com/txonce/txonce/adapters/telemetry"
	"github.com/txonce/txonce/adapters/webhook"
	"github.com/txonce/txonce/consumer"
)

// sender is a Verifier whose deliveries are a list of IDs.
type sender struct{}

func (sender) Source() webhook.Source {
	return webhook.Source{Name: "sender", Horizon: 24 * time.Hour, GiveUpAfter: time.Hour}
}

func (sender) Verify(_ context.Context, d *webhook.Delivery) (events []webhook.Event, err error) {
	if d.Header.Get("Signature") != "right" {
		return nil, webhook.Refuse(webhook.BadSignature, "forged")
	}
	var ids []string
	if err := json.Unmarshal(d.Body, &ids); err != nil {
		return nil, err
	}
	for _, id := range ids {
		events = append(events, webhook.Event{Message: consumer.Message{
			ID: id, Tenant: "sender", Topic: "paid", Payload: []byte(id), Time: time.Now().Add(-time.Minute),
		}})
	}
	return events, nil
}

func deliverTo(ctx context.Context, r http.Handler, signature, body string) {
	request := httptest.NewRequestWithContext(ctx, http.MethodPost, "/hooks", strings.NewReader(body))
	request.Header.Set("Signature", signature)
	r.ServeHTTP(httptest.NewRecorder(), request)
}

func TestWebhookTelemetry(t *testing.T) {
	r := newRig(t, telemetry.Config{})
	var inside trace.SpanContext
	c := newConsumer(t, consumer.Config[tx]{
		Window: 48 * time.Hour, Trace: r.Consumer(telemetry.ConsumerConfig{Name: "billing"}),
		Handle: func(ctx context.Context, _ tx, m *consumer.Message) error {
			inside = trace.SpanContextFromContext(ctx)
			switch m.ID {
			case "bad":
				return consumer.Permanent(errors.New("bad"))
			case "later":
				return &consumer.RetryError{Err: errors.New("later"), After: time.Minute}
			}
			return nil
		},
	})
	receiver, err := webhook.New(webhook.Config{
		Verifier: sender{}, Processor: c, Trace: r.Webhook("sender"), Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	deliverTo(ctx, receiver, "right", `["1"]`)
	deliverTo(ctx, receiver, "right", `["1", "bad"]`)
	deliverTo(ctx, receiver, "right", `["later"]`)
	deliverTo(ctx, receiver, "wrong", `["1"]`)
	metrics := r.collect(t)
	for name, want := range map[string]map[string]int64{
		"txonce.webhook.events": {
			"outcome=new,source=sender": 1, "outcome=duplicate,source=sender": 1, "outcome=parked,source=sender": 1,
			"outcome=deferred,source=sender": 1, "outcome=rejected,source=sender": 0, "outcome=dropped,source=sender": 0,
		},
		"txonce.webhook.deliveries": {
			"answer=2xx,source=sender": 2, "answer=4xx,source=sender": 1, "answer=5xx,source=sender": 1,
		},
		"txonce.webhook.refused": {
			"refusal=bad-signature,source=sender": 1, "refusal=unsigned,source=sender": 0,
			"refusal=bad-time,source=sender": 0, "refusal=malformed,source=sender": 0,
		},
	} {
		if diff := cmp.Diff(want, values(t, metrics[name])); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	spans := r.named("webhook sender")
	if len(spans) != 4 {
		t.Fatalf("%d spans, want 4", len(spans))
	}
	passes := r.named("process paid")
	if len(passes) == 0 || passes[0].Parent().SpanID() != spans[0].SpanContext().SpanID() || !inside.IsValid() {
		t.Errorf("%d spans of the consumer; the first one's parent must be the delivery", len(passes))
	}
	if events := spans[0].Events(); len(events) != 1 || events[0].Name != "new" {
		t.Errorf("events of the first delivery: %v", events)
	}
	if a := attributes(spans[3]); a["txonce.reason"] != "bad-signature" || a["http.response.status_code"] != "400" {
		t.Errorf("the span of a forged delivery: %v", a)
	}
}
