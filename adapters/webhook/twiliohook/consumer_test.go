package twiliohook_test

import (
	"net/url"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/txonce/txonce/adapters/webhook/twiliohook"
	"github.com/txonce/txonce/internal/test/verifiers"
	"github.com/txonce/txonce/observe"
)

// What a consumer does with the events: each status once, and captured forms that were divided anew never.
func TestConsumer(t *testing.T) {
	c, outcomes := verifiers.NewConsumer(t)
	v := newVerifier(t, twiliohook.Config{Identify: func(form url.Values) (twiliohook.Identity, error) {
		return twiliohook.Identity{ID: form.Get("MessageSid") + ":" + form.Get("MessageStatus"), Topic: "message"}, nil
	}})
	form := url.Values{"MessageSid": {"SM1"}, "MessageStatus": {"sent"}, "To": {"+1"}}
	captured := twiliohook.Sign(token, target, form)
	receive := func(signature string, form url.Values) {
		t.Helper()
		events, err := v.Verify(t.Context(), delivery(target, signature, form.Encode()))
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Process(t.Context(), &events[0].Message); err != nil {
			t.Fatal(err)
		}
	}
	receive(captured, form)
	receive(captured, form)
	receive(captured, url.Values{"MessageSid": {"SM1MessageStatussent"}, "To": {"+1"}})
	later := url.Values{"MessageSid": {"SM1"}, "MessageStatus": {"delivered"}, "To": {"+1"}}
	receive(twiliohook.Sign(token, target, later), later)
	changed := url.Values{"MessageSid": {"SM1"}, "MessageStatus": {"delivered"}, "To": {"+2"}}
	receive(twiliohook.Sign(token, target, changed), changed)
	if diff := cmp.Diff([]string{"SM1:sent", "SM1:delivered"}, outcomes.Handled); diff != "" {
		t.Errorf("handled (-want +got)\n%s", diff)
	}
	if diff := cmp.Diff([]string{"SM1MessageStatussent: " + string(observe.CauseKnownContent), "SM1:delivered " + string(observe.CauseMismatch)}, outcomes.Parked); diff != "" {
		t.Errorf("case 55: parked (-want +got)\n%s", diff)
	}
}
