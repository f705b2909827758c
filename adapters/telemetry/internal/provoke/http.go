package provoke

import (
	"context"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/txonce/txonce/adapters/httpidem"
	"github.com/txonce/txonce/adapters/telemetry"
	"github.com/txonce/txonce/adapters/webhook"
	"github.com/txonce/txonce/consumer"
)

// HTTP reports each decision once for a Guard "payments-api", and each outcome for webhooks of "stripe".
func HTTP(ctx context.Context, t *telemetry.Telemetry) {
	guard := t.HTTP("payments-api")
	for _, decision := range httpidem.Decisions() {
		e := httpidem.Event{
			Guard: "payments-api", Request: httptest.NewRequestWithContext(ctx, http.MethodPost, "/payments", http.NoBody),
			Decision: decision, Status: http.StatusCreated, Took: time.Millisecond, Waited: time.Second, Age: time.Minute,
			InDoubt: true, Key: "0123456789abcdef",
		}
		switch decision {
		case httpidem.Conflict:
			e.Status, e.Reason = http.StatusConflict, httpidem.InFlight
		case httpidem.Mismatched:
			e.Status, e.Reason = http.StatusUnprocessableEntity, httpidem.Mismatch
		case httpidem.Refused:
			e.Status, e.Reason = http.StatusServiceUnavailable, httpidem.Unavailable
		default:
		}
		answered := ctx
		if guard.Start != nil {
			answered = guard.Start(ctx, e)
		}
		hook := map[httpidem.Decision]func(context.Context, httpidem.Event){
			httpidem.First: guard.Committed, httpidem.Unkeyed: guard.Committed, httpidem.Recorded: guard.Recorded,
			httpidem.Undone: guard.Unstored, httpidem.Replayed: guard.Replayed, httpidem.Panicked: guard.Panicked,
		}[decision]
		if hook == nil {
			hook = guard.Refused
		}
		hook(answered, e)
	}

	hooks := t.Webhook("stripe")
	event := webhook.TraceEvent{Source: "stripe", Took: time.Millisecond, Message: &consumer.Message{
		ID: "evt_1", Tenant: "stripe/live", Topic: "invoice.paid", Time: time.Now().Add(-time.Hour),
	}}
	delivery := ctx
	if hooks.Start != nil {
		delivery = hooks.Start(ctx, webhook.TraceEvent{Source: "stripe"})
	}
	for _, hook := range []func(context.Context, webhook.TraceEvent){
		hooks.Dropped, hooks.Accepted, hooks.Duplicate, hooks.Parked, hooks.Deferred, hooks.Rejected,
	} {
		hook(delivery, event)
	}
	hooks.Refused(delivery, webhook.TraceEvent{Source: "stripe", Refusal: webhook.BadSignature, Status: http.StatusBadRequest})
	if hooks.Late != nil {
		hooks.Late(delivery, webhook.TraceEvent{Source: "stripe", Status: http.StatusServiceUnavailable})
	}
	hooks.Answered(delivery, webhook.TraceEvent{Source: "stripe", Status: http.StatusServiceUnavailable, Took: time.Second})
}
