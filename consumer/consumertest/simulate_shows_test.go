package consumertest_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/consumer/consumertest"
)

// A simulation that cannot show anything does not pass.
func TestSimulateRefusesWhatShowsNothing(t *testing.T) {
	for _, tc := range []struct {
		name   string
		change func(s *consumertest.Simulation)
		says   string
	}{
		{"nobody looks at the effects", func(s *consumertest.Simulation) { s.Effects = nil }, "Effects or"},
		{"no messages", func(s *consumertest.Simulation) {
			s.Messages = func(*rand.Rand) []consumer.Message { return nil }
		}, "Messages has returned none"},
		{"a handler that always fails", func(s *consumertest.Simulation) {
			*s = simulated(consumer.MessageID,
				func(context.Context, *consumertest.Process, tx, *consumer.Message) error {
					return consumer.Permanent(errors.New("not for me"))
				})
		}, "no message has had an effect"},
		{"a key function that always fails", func(s *consumertest.Simulation) {
			*s = simulated(consumer.JSONKey("order_id"), charged)
		}, "no message has had an effect"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := simulated(consumer.MessageID, charged)
			tc.change(&s)
			s.Cases = 20
			if said := consumertest.Simulated(t, s); !strings.Contains(said, tc.says) {
				t.Errorf("it says %q, want %q", said, tc.says)
			}
		})
	}
}

// The printed command runs the test that failed, whatever its name has.
func TestTheCommandOfAFailureRunsItsTest(t *testing.T) {
	for name, want := range map[string]string{
		"TestOrders":                "^TestOrders$",
		"TestOrders/by_batch_(two)": `^TestOrders$/^by_batch_\(two\)$`,
		"TestOrders/it's":           "^TestOrders$/^it.s$",
	} {
		if got := consumertest.Exactly(name); got != want {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
	}
}

// A case is at rest only when requests that are late have arrived: the second of two may be the one that does harm.
func TestSimulateWaitsForLateRequests(t *testing.T) {
	var answered, arrived atomic.Int64
	s := simulated(consumer.MessageID, func(
		ctx context.Context, p *consumertest.Process, tx tx, m *consumer.Message,
	) error {
		if err := p.Request(ctx, "to pay "+m.ID, func() error { arrived.Add(1); return nil }); err == nil {
			answered.Add(1)
		}
		return charged(ctx, p, tx, m)
	})
	all := int64(0)
	for n := range 100 {
		late := int64(0)
		answered.Store(0)
		arrived.Store(0)
		atRest := int64(0)
		s.Check = func(*consumertest.World) error {
			atRest = arrived.Load()
			return nil
		}
		s.Fired = func(boundary, action string) {
			if boundary == "request" && action == "late" {
				late++
			}
		}
		if said := consumertest.SimulateCase(t, s, n); said != "" {
			t.Fatal(said)
		}
		if all += late; atRest < answered.Load()+late {
			t.Errorf("case %d: %d requests are answered and %d late, and %d have arrived at rest", n, answered.Load(), late,
				atRest)
		}
	}
	if all == 0 {
		t.Error("no request was late")
	}
}
