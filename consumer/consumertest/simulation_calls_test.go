package consumertest_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
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
	latest   map[string]int64  // sequence number of the call that was paid last for the first time, by ordering key
	wrong    error             // what must not happen
}

func newProvider(keyed bool) *provider {
	return &provider{keyed: keyed, answers: map[string]string{}, payments: map[string]int{}, latest: map[string]int64{}}
}

// pay is what happens at the provider.
func (p *provider) pay(c calls.Call) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	if answer, known := p.answers[c.IdempotencyKey]; known && p.keyed {
		return answer
	}
	p.payments[string(c.Payload)]++
	if p.payments[string(c.Payload)] == 1 {
		p.judge(c)
	}
	p.answers[c.IdempotencyKey] = fmt.Sprintf("payment %d of %s", p.payments[string(c.Payload)], c.Payload)
	return p.answers[c.IdempotencyKey]
}

// judge looks at the first payment of a call: it comes after those of the earlier calls of its key, and not before its
// time.
func (p *provider) judge(c calls.Call) {
	seq, err := strconv.ParseInt(c.Headers[outbox.HeaderSequence], 10, 64)
	if err != nil {
		p.wrong = err
	}
	if key := c.Headers["key"]; key != "" {
		if seq < p.latest[key] {
			p.wrong = fmt.Errorf("%s is paid after a later call of its key", c.Payload)
		}
		p.latest[key] = max(p.latest[key], seq)
	}
	if text := c.Headers["not-before"]; text != "" {
		due, err := time.Parse(time.RFC3339Nano, text)
		if p.wrong = errors.Join(p.wrong, err); time.Now().Before(due) {
			p.wrong = fmt.Errorf("%s is paid before its time, which is %s", c.Payload, text)
		}
	}
}

// judged returns what must not happen and has happened.
func (p *provider) judged() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.wrong
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
	keyed := draw(p.Rand()).keyed
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
			s := draw(p.Rand())
			return s.billing.configure(consumer.Config[tx]{
				Name: "billing", Store: p.Store(), Key: consumer.MessageID, Backoff: p.Backoff,
				Logger: slog.New(slog.DiscardHandler),
			}, func(ctx context.Context, tx tx, m *consumer.Message) error {
				if m.Headers["kind"] == ignored {
					return nil
				}
				if err := tx.Add("charge of " + m.ID); err != nil {
					return err
				}
				request := calls.Request{
					OrderingKey: s.outgoingKey, Payload: m.Payload, NotBefore: s.notBefore(),
					Headers: map[string]string{"key": s.outgoingKey},
				}
				if s.delay > 0 {
					request.Headers["not-before"] = request.NotBefore.Format(time.RFC3339Nano)
				}
				return shop.Enqueue(ctx, tx, request)
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
				due := w.Database().Count("charge of " + m.ID)
				if n, entries := shop.of(m.ID), w.Database().Count("entry of "+m.ID); n != due || entries != due {
					return fmt.Errorf("%s was paid %d times, and has %d entries, want %d", m.ID, n, entries, due)
				}
			}
			return shop.judged()
		},
	}
}
