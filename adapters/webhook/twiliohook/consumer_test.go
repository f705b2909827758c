package twiliohook_test

import (
	"context"
	"net/url"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/txonce/txonce/adapters/webhook/twiliohook"
	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/consumer/consumertest"
	"github.com/txonce/txonce/dedup/deduptest"
	"github.com/txonce/txonce/observe"
)

// What a consumer does with the events: each status once, and captured forms that were divided anew never.
func TestConsumer(t *testing.T) {
	var handled, parked []string
	c, err := consumer.New(consumer.Config[*deduptest.Tx]{
		Name: "sms", Store: consumertest.NewStore(), Key: consumer.MessageID,
		Handle: func(_ context.Context, _ *deduptest.Tx, m *consumer.Message) error {
			handled = append(handled, m.ID)
			return nil
		},
		Trace: &consumer.Trace{Done: func(_ context.Context, _ *consumer.Delivery, outcomes []consumer.MessageOutcome) {
			for _, o := range outcomes {
				if o.Outcome == observe.Parked {
					parked = append(parked, string(o.Cause))
				}
			}
		}},
	})
	if err != nil {
		t.Fatal(err)
	}
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
	if diff := cmp.Diff([]string{"SM1:sent", "SM1:delivered"}, handled); diff != "" {
		t.Errorf("handled (-want +got)\n%s", diff)
	}
	if diff := cmp.Diff([]string{string(observe.CauseReplay), string(observe.CauseMismatch)}, parked); diff != "" {
		t.Errorf("case 55: parked (-want +got)\n%s", diff)
	}
}
