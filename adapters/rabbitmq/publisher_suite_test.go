package rabbitmq_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/txonce/txonce/adapters/rabbitmq"
	"github.com/txonce/txonce/adapters/rabbitmq/internal/rabbitmqtest"
	"github.com/txonce/txonce/internal/test/brokers/testrabbitmq"
	"github.com/txonce/txonce/outbox"
	"github.com/txonce/txonce/outbox/outboxtest"
)

// site is a server to publish to, with functions to read its queues.
type site struct {
	dial  rabbitmq.Dialer // as the Publisher does
	own   rabbitmq.Dialer // as the test does, past all that may be in the way
	queue func(t *testing.T, args amqp.Table) string
	hush  func() func()
	close func() func()
	dials func() int
}

// fakeSite is a server in memory.
func fakeSite(cfg rabbitmqtest.Config) (*site, *rabbitmqtest.Server) {
	s := rabbitmqtest.NewServer(cfg)
	n := 0
	var dials atomic.Int64
	return &site{
		dial: func(ctx context.Context) (rabbitmq.Connection, error) {
			dials.Add(1)
			return s.Dial(ctx)
		},
		own: s.Dial,
		queue: func(t *testing.T, args amqp.Table) string {
			n++
			name := fmt.Sprint("queue-", n)
			declare(t, s.Dial, name, args)
			return name
		},
		hush: s.Pause,
		close: func() func() {
			s.Stop()
			return s.Start
		},
		dials: func() int { return int(dials.Load()) },
	}, s
}

// realSite is a proxy before a real server.
func realSite(t *testing.T, url string) *site {
	p := newProxy(t, url)
	return &site{
		dial: dialer(p.url), own: dialer(url),
		queue: func(t *testing.T, args amqp.Table) string { return testrabbitmq.Queue(t, url, args) },
		hush:  p.hush, close: p.close, dials: p.dialed,
	}
}

func declare(t *testing.T, dial rabbitmq.Dialer, name string, args amqp.Table) {
	t.Helper()
	onChannel(t, dial, func(ch rabbitmq.Channel) error {
		_, err := ch.QueueDeclare(name, true, false, false, false, args)
		return err
	})
}

// onChannel runs do on a channel of a connection of its own.
func onChannel(t *testing.T, dial rabbitmq.Dialer, do func(rabbitmq.Channel) error) {
	t.Helper()
	c, err := dial(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	ch, err := c.Channel()
	if err != nil {
		t.Fatal(err)
	}
	if err := do(ch); err != nil {
		t.Fatal(err)
	}
}

// read takes at least n messages from queue, and waits a while for more: for messages that the broker has taken without
// a confirm.
func (s *site) read(t *testing.T, queue string, n int) (msgs []outbox.Message) {
	t.Helper()
	onChannel(t, s.own, func(ch rabbitmq.Channel) error {
		there, err := ch.QueueDeclarePassive(queue, true, false, false, false, nil)
		if err != nil {
			return err
		}
		n = max(n, there.Messages)
		deliveries, err := ch.ConsumeWithContext(t.Context(), queue, "", true, false, false, false, nil)
		if err != nil {
			return err
		}
		for {
			wait := 300 * time.Millisecond
			if len(msgs) < n {
				wait = 2 * time.Minute
			}
			select {
			case d, ok := <-deliveries:
				if !ok {
					return errors.New("the deliveries ended")
				}
				msgs = append(msgs, received(queue, d))
			case <-time.After(wait):
				return nil
			}
		}
	})
	return msgs
}

// received is d as a reader of the outbox's messages understands it.
func received(topic string, d amqp.Delivery) outbox.Message {
	m := outbox.Message{Topic: topic, Payload: d.Body, Headers: map[string]string{}}
	for name, v := range d.Headers {
		text, ok := v.(string)
		if b, isBytes := v.([]byte); isBytes {
			text, ok = string(b), true
		}
		if !ok {
			text = fmt.Sprintf("%T, which is neither text nor bytes", v)
		}
		if name == rabbitmq.HeaderKey {
			m.OrderingKey = text
			continue
		}
		m.Headers[name] = text
	}
	if d.MessageId != m.Headers[outbox.HeaderID] {
		m.Headers[outbox.HeaderID] = fmt.Sprintf("%s, with MessageId %s", m.Headers[outbox.HeaderID], d.MessageId)
	}
	if d.DeliveryMode != amqp.Persistent {
		m.Headers["transient"] = fmt.Sprint(d.DeliveryMode)
	}
	return m
}

func harness(s func(t *testing.T) *site, args amqp.Table, cfg rabbitmq.PublisherConfig,
	large int,
) outboxtest.PublisherHarness {
	var at *site // of the case that runs
	return outboxtest.PublisherHarness{
		New: func(t *testing.T) outbox.Publisher {
			at = s(t)
			cfg := cfg
			cfg.Dial = at.dial
			return newPublisher(t, cfg)
		},
		Topic: func(t *testing.T) string { return at.queue(t, args) },
		Read: func(t *testing.T, topic string, n int) []outbox.Message {
			return at.read(t, topic, n)
		},
		Oversize: func(m outbox.Message) outbox.Message {
			m.Payload = make([]byte, large)
			return m
		},
		Unroutable: func(*testing.T) string { return "no-such-queue" },
		Unsafe: []outboxtest.Unsafe{{Setting: "Recovery", New: func(t *testing.T) error {
			return publishOn(t, func(ctx context.Context) (rabbitmq.Connection, error) {
				c, err := at.own(ctx)
				return recovering{c}, err
			})
		}}},
		Pause: func(*testing.T) func() { return at.hush() },
		Stop:  func(*testing.T) func() { return at.close() },
	}
}

// recovering is a connection whose loss amqp091-go would hide.
type recovering struct{ rabbitmq.Connection }

func (recovering) IsRecoveryEnabled() bool { return true }

// publishOn returns the error of a Publisher with this Dialer.
func publishOn(t *testing.T, dial rabbitmq.Dialer) error {
	p := newPublisher(t, rabbitmq.PublisherConfig{Dial: dial})
	return p.Publish(t.Context(), []outbox.Message{{ID: "1", Topic: "t"}})[0]
}

func newPublisher(t *testing.T, cfg rabbitmq.PublisherConfig) *rabbitmq.Publisher {
	t.Helper()
	p, err := rabbitmq.NewPublisher(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	return p
}

var kinds = map[string]amqp.Table{"classic": nil, "quorum": {"x-queue-type": "quorum"}}

func TestPublisherOnFake(t *testing.T) {
	for kind, args := range kinds {
		t.Run(kind, func(t *testing.T) {
			h := harness(func(*testing.T) *site {
				s, _ := fakeSite(rabbitmqtest.Config{})
				return s
			}, args, rabbitmq.PublisherConfig{MaxMessageBytes: 1 << 20}, 1<<20+1)
			h.Run = synctest.Test
			outboxtest.TestPublisher(t, h)
		})
	}
	t.Run("the server refuses large messages", func(t *testing.T) {
		h := harness(func(*testing.T) *site {
			s, _ := fakeSite(rabbitmqtest.Config{MaxMessageBytes: 2 << 20})
			return s
		}, nil, rabbitmq.PublisherConfig{}, 2<<20+1)
		h.Run = synctest.Test
		outboxtest.TestPublisher(t, h)
	})
}

func TestPublisher(t *testing.T) {
	t.Parallel()
	url := testrabbitmq.Server(t)
	at := func(t *testing.T) *site { return realSite(t, url) }
	for kind, args := range kinds {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			outboxtest.TestPublisher(t, harness(at, args, rabbitmq.PublisherConfig{MaxMessageBytes: 1 << 20}, 1<<20+1))
		})
	}
}

// TestPublisherRefusesRecovery is about amqp091-go's own report that a connection recovers by itself.
func TestPublisherRefusesRecovery(t *testing.T) {
	url := testrabbitmq.Server(t)
	dial := func(context.Context) (rabbitmq.Connection, error) {
		c, err := amqp.DialConfig(url, amqp.Config{Recovery: &amqp.Recovery{ReconnectionConfig: &amqp.ReconnectionConfig{MaxRetryCount: 3}}})
		return rawConnection{c}, err
	}
	if err := publishOn(t, dial); err == nil || !strings.Contains(err.Error(), "Recovery is set") {
		t.Errorf("%v; want it refused", err)
	}
}

// rawConnection is a connection that Dial has not made.
type rawConnection struct{ *amqp.Connection }

func (rawConnection) Channel() (rabbitmq.Channel, error) {
	return rabbitmq.Channel{}, errors.New("not to be used")
}
