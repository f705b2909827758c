package hmachook_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/txonce/txonce/internal/test/verifiers"
	"github.com/txonce/txonce/observe"
)

// What a consumer does with events whose id is not signed.
func TestConsumer(t *testing.T) {
	c, outcomes := verifiers.NewConsumer(t)
	receive := func(id, topic, body string) {
		t.Helper()
		d := signed(t, unsignedID(), body)
		d.Header.Set("X-Delivery", id)
		d.Header.Set("X-Topic", topic)
		events, err := newVerifier(t, unsignedID()).Verify(t.Context(), d)
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Process(t.Context(), &events[0].Message); err != nil {
			t.Fatal(err)
		}
	}
	receive("d1", "paid", `{"order":1}`)
	receive("d1", "paid", `{"order":1}`) // delivered again
	receive("d2", "paid", `{"order":1}`) // captured, and sent with a new id
	receive("d3", "shipped", `{"order":1}`)
	receive("d4", "paid", `{"order":2}`)
	receive("d4", "shipped", `{"order":2}`) // a sender that gives both events one id
	receive("d6", "paid", `{"order":5}`)    // captured before it was delivered, and sent with the id of another event
	receive("d6", "paid", `{"order":6}`)
	receive("d5", "paid", `{"order":5}`)
	if diff := cmp.Diff([]string{"d1:paid", "d3:shipped", "d4:paid", "d4:shipped", "d6:paid"},
		outcomes.Handled); diff != "" {
		t.Errorf("E17: handled (-want +got)\n%s", diff)
	}
	want := []string{
		"d2:paid " + string(observe.CauseKnownContent), "d6:paid " + string(observe.CauseMismatch),
		"d5:paid " + string(observe.CauseKnownContent),
	}
	if diff := cmp.Diff(want, outcomes.Parked); diff != "" {
		t.Errorf("case 54: parked (-want +got)\n%s", diff)
	}
}
