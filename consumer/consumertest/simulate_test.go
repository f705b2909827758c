package consumertest_test

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/consumer/consumertest"
	"github.com/txonce/txonce/dedup/deduptest"
	"github.com/txonce/txonce/outbox"
)

// simulated returns a simulation whose consumer has this handler and key.
func simulated(key consumer.KeyFunc,
	handle func(ctx context.Context, p *consumertest.Process, tx tx, m *consumer.Message) error,
) consumertest.Simulation {
	return consumertest.Simulation{
		New: func(p *consumertest.Process) (*consumer.Consumer[tx], error) {
			return consumer.New(consumer.Config[tx]{
				Name: "billing", Store: p.Store(), Key: key, Backoff: p.Backoff, Logger: slog.New(slog.DiscardHandler),
				Handle: func(ctx context.Context, tx tx, m *consumer.Message) error { return handle(ctx, p, tx, m) },
			})
		},
		Messages: func(r *rand.Rand) []consumer.Message {
			m := consumer.Message{ID: fmt.Sprint("order-", r.IntN(100)), Payload: []byte("1")}
			return []consumer.Message{m, m}
		},
		Effects: func(w *consumertest.World, m *consumer.Message) int { return w.Database().Count("charge of " + m.ID) },
	}
}

// charged is a handler as it should be.
func charged(_ context.Context, _ *consumertest.Process, tx tx, m *consumer.Message) error {
	return tx.Add("charge of " + m.ID)
}

// Tx.Add counts an effect: in the program that is the statement of the handler, in its own transaction.
func ExampleSimulate() {
	_ = func(t *testing.T) { // func TestBilling
		consumertest.Simulate(t, consumertest.Simulation{
			New: func(p *consumertest.Process) (*consumer.Consumer[*deduptest.Tx], error) {
				store := p.Store()
				return consumer.New(consumer.Config[*deduptest.Tx]{
					Name: "billing", Store: store, Key: consumer.MessageID, Backoff: p.Backoff,
					Logger: slog.New(slog.DiscardHandler),
					Handle: func(ctx context.Context, tx *deduptest.Tx, m *consumer.Message) error {
						if err := tx.Add("charge of " + m.ID); err != nil {
							return err
						}
						return store.Enqueue(ctx, tx, outbox.Message{Topic: "charges", Payload: m.Payload})
					},
				})
			},
			Messages: func(r *rand.Rand) []consumer.Message {
				return []consumer.Message{{ID: "order-1"}, {ID: "order-2"}, {ID: "order-1"}}
			},
			Check: func(w *consumertest.World) error {
				for _, m := range w.Delivered() {
					if n := w.Database().Count("charge of " + m.ID); n != 1 {
						return fmt.Errorf("%s was charged %d times", m.ID, n)
					}
				}
				return nil
			},
			Processes: 2, Relays: 1,
		})
	}
}

func TestSimulatePassesForAHandlerAsItShouldBe(t *testing.T) {
	s := simulated(consumer.MessageID, func(
		ctx context.Context, p *consumertest.Process, tx tx, m *consumer.Message,
	) error {
		if err := p.Step(ctx, "think"); err != nil {
			return err
		}
		return tx.Add("charge of " + m.ID)
	})
	s.Cases = 200
	fired := 0
	s.Fired = func(string, string) { fired++ }
	consumertest.Simulate(t, s)
	if fired == 0 {
		t.Error("no fault happened")
	}
}

// The simulation finds handlers that are wrong, and says what a person needs to see why.
func TestSimulateFindsHandlersThatAreWrong(t *testing.T) {
	var outside atomic.Int64
	for _, tc := range []struct {
		name string
		sim  consumertest.Simulation
		says string
	}{
		{"a key that differs between deliveries", simulated(
			func(m *consumer.Message) (string, error) { return m.Position, nil },
			func(_ context.Context, _ *consumertest.Process, tx tx, m *consumer.Message) error {
				return tx.Add("charge of " + m.ID)
			}), "2 effects"},
		{"an effect in another transaction", simulated(consumer.MessageID,
			func(ctx context.Context, p *consumertest.Process, tx tx, m *consumer.Message) error {
				own, err := p.Store().Database().Begin(ctx)
				if err != nil {
					return err
				}
				if err := own.Add("charge of " + m.ID); err != nil {
					return err
				}
				if err := own.Commit(ctx); err != nil {
					return err
				}
				return tx.Add("something else")
			}), "effects"},
		{"no effect", simulated(consumer.MessageID,
			func(context.Context, *consumertest.Process, tx, *consumer.Message) error {
				outside.Add(1)
				return nil
			}), "neither an effect nor a dead letter"},
		{"a key of the attempt", simulated(
			func(m *consumer.Message) (string, error) { return fmt.Sprint(m.ID, " ", m.Attempt), nil }, charged,
		), "has the key"},
		{"a key of the time", simulated(
			func(m *consumer.Message) (string, error) { return fmt.Sprint(m.ID, " ", time.Now()), nil }, charged,
		), "has the key"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			for n := range 500 {
				said := consumertest.SimulateCase(t, tc.sim, n)
				if said == "" {
					continue
				}
				for _, want := range []string{
					tc.says, fmt.Sprintf("SEED=1 FROM=%d CASES=1 go test", n), "shortest plan", "the history of order-",
				} {
					if !strings.Contains(said, want) {
						t.Errorf("%q is missing in\n%s", want, said)
					}
				}
				return
			}
			t.Error("500 cases have not found it")
		})
	}
}
