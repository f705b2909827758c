package telemetry_test

import (
	"testing"

	"github.com/txonce/txonce/adapters/telemetry"
	"github.com/txonce/txonce/observe"
)

// A loss counts for its consumer, and one that has not happened is exported as 0.
func TestLosses(t *testing.T) {
	r := newRig(t, telemetry.Config{})
	hooks := r.Consumer(telemetry.ConsumerConfig{Name: "billing"})
	r.HTTP("charges")
	outgoing := r.Relay("relay-1")
	want := func(billing, relays int64) {
		t.Helper()
		got := values(t, r.collect(t)["txonce.database.losses"])
		for consumer, n := range map[string]int64{"billing": billing, "charges": 0, "outbox relays": relays} {
			if found, ok := got["consumer="+consumer]; !ok || found != n {
				t.Errorf("%s: %d, exported: %t; want %d", consumer, found, ok, n)
			}
		}
	}
	want(0, 0)
	hooks.WentBack(t.Context(), observe.Loss{Name: "billing"})
	outgoing.WentBack(t.Context(), observe.Loss{Name: "outbox relays"})
	outgoing.WentBack(t.Context(), observe.Loss{Name: "outbox relays"})
	want(1, 2)
}
