package consumertest_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/txonce/txonce/calls"
	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/consumer/consumertest"
	"github.com/txonce/txonce/outbox"
)

// provider is a payment provider, which all processes of a case call.
type provider struct {
	keyed bool // it knows idempotency keys

	mu       sync.Mutex
	answers  map[string]string // by idempotency key
	payments map[string]int    // by call
}

func newProvider(keyed bool) *provider {
	return &provider{keyed: keyed, answers: map[string]string{}, payments: map[string]int{}}
}

// pay is what happens at the provider.
func (p *provider) pay(c calls.Call) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	if answer, known := p.answers[c.IdempotencyKey]; known && p.keyed {
		return answer
	}
	p.payments[string(c.Payload)]++
	p.answers[c.IdempotencyKey] = fmt.Sprintf("payment %d of %s", p.payments[string(c.Payload)], c.Payload)
	return p.answers[c.IdempotencyKey]
}

func (p *provider) find(c calls.Call) (answer string, found bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	answer, found = p.answers[c.IdempotencyKey]
	return answer, found
}

func (p *provider) of(payload string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.payments[payload]
}

// payments returns the Calls of a process. In half of the cases the provider has idempotency keys, in the others it can
// be asked.
func payments(p *consumertest.Process) (*calls.Calls[tx], error) {
	keyed := p.Rand().IntN(2) == 0
	shop := p.Shared(func() any { return newProvider(keyed) }).(*provider)
	cfg := calls.Config[tx]{
		Name: "pay", Store: p.Store(), Timeout: 150 * time.Millisecond, Settles: consumertest.MaxLate + time.Second,
		Do: func(ctx context.Context, c calls.Call) (r calls.Result, err error) {
			err = p.Request(ctx, "to pay "+string(c.Payload), func() error {
				r = calls.Result(shop.pay(c))
				return nil
			})
			return r, err
		},
		Find: func(ctx context.Context, c calls.Call) (r calls.Result, found bool, err error) {
			err = p.Request(ctx, "to find "+string(c.Payload), func() error {
				var answer string
				answer, found = shop.find(c)
				r = calls.Result(answer)
				return nil
			})
			return r, found, err
		},
		Done: func(_ context.Context, tx tx, c calls.Call, r calls.Result) error {
			if len(r) == 0 {
				return errors.New("the result is empty")
			}
			return tx.Add("entry of " + string(c.Payload))
		},
	}
	if keyed {
		cfg.Keeps = 24 * time.Hour
	}
	return calls.New(cfg)
}

// paymentSimulation is a consumer that requests a payment for each message, and relays that make it.
func paymentSimulation() consumertest.Simulation {
	return consumertest.Simulation{
		New: func(p *consumertest.Process) (*consumer.Consumer[tx], error) {
			shop, err := payments(p)
			if err != nil {
				return nil, err
			}
			return consumer.New(consumer.Config[tx]{
				Name: "billing", Store: p.Store(), Key: consumer.MessageID, Backoff: p.Backoff,
				Logger: slog.New(slog.DiscardHandler),
				Handle: func(ctx context.Context, tx tx, m *consumer.Message) error {
					if err := tx.Add("charge of " + m.ID); err != nil {
						return err
					}
					return shop.Enqueue(ctx, tx, calls.Request{OrderingKey: "k", Payload: m.Payload})
				},
			})
		},
		Publishers: func(p *consumertest.Process) (map[string]outbox.Publisher, error) {
			shop, err := payments(p)
			return map[string]outbox.Publisher{"pay": shop}, err
		},
		Messages: orders, Effects: charges, Processes: 2, Relays: 2,
		Check: func(w *consumertest.World) error {
			shop := w.Shared().(*provider)
			for _, m := range w.Delivered() {
				if m.ID == "" {
					continue // it has no key, so that the handler has not run
				}
				if n, entries := shop.of(m.ID), w.Database().Count("entry of "+m.ID); n != 1 || entries != 1 {
					return fmt.Errorf("%s was paid %d times, and has %d entries", m.ID, n, entries)
				}
			}
			return nil
		},
	}
}
