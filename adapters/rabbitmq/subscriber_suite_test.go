package rabbitmq_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/txonce/txonce/adapters/rabbitmq"
	"github.com/txonce/txonce/adapters/rabbitmq/internal/rabbitmqtest"
	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/consumer/consumertest"
	"github.com/txonce/txonce/consumer/driver"
	"github.com/txonce/txonce/internal/test/brokers/testrabbitmq"
	"github.com/txonce/txonce/internal/test/features"
	"github.com/txonce/txonce/internal/test/matrix"
	"github.com/txonce/txonce/internal/test/testlog"
)

// TestSubscriber runs the suite on RabbitMQ, and TestSubscriberOnFake in memory: on classic and quorum queues, in order
// or not.
func TestSubscriber(t *testing.T) {
	t.Parallel()
	missing := map[string]string{}
	if why := testrabbitmq.NoOwn(); why != "" {
		missing[restartCase] = why
	}
	testSubscriber(t, sharedOrOwn(t, testrabbitmq.Server(t)), missing, func(t *testing.T, c func(*testing.T)) {
		t.Parallel()
		c(t)
	})
}

func TestSubscriberOnFake(t *testing.T) {
	t.Parallel()
	testSubscriber(t, func(*testing.T) subscriberSite {
		s := rabbitmqtest.NewServer(rabbitmqtest.Config{})
		return subscriberSite{
			dial: s.Dial, name: func(t *testing.T) string { return t.Name() },
			gate: func(*testing.T) (rabbitmq.Dialer, func()) { return fakeGate(s) },
			left: func(_ context.Context, queues []string) (int, error) {
				for last := -1; ; {
					// until twice the same: a message may go from one queue to another between the looks at them
					n := 0
					for _, q := range queues {
						state, _ := s.Queue(q)
						n += state.Ready + state.Unacked
					}
					if n == last {
						return n, nil
					}
					last = n
				}
			},
			restart: func(context.Context) error {
				s.Stop()
				<-time.After(500 * time.Millisecond)
				s.Start()
				return nil
			},
		}
	}, nil, synctest.Test)
}

// appliesTo are the cases that exist only in Ordered mode, or only without it.
var appliesTo = map[string]bool{"order within a key": true, "attempts count on at another subscriber": false}

// testSubscriber runs each case on each kind of queue, and both in Ordered mode and without it, but not each
// combination of the two.
func testSubscriber(t *testing.T, site func(t *testing.T) subscriberSite, missing map[string]string,
	run func(t *testing.T, c func(*testing.T)),
) {
	for i, quorum := range []bool{false, true} {
		for j, ordered := range []bool{false, true} {
			name := map[bool]string{false: "classic", true: "quorum"}[quorum] + map[bool]string{
				false: "",
				true:  ", ordered",
			}[ordered]
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				can := features.RabbitMQ.Features
				if ordered {
					can = features.RabbitMQOrdered.Features
				}
				can.DoesNotApply = missing
				consumertest.TestSubscriber(t, consumertest.SubscriberHarness{
					New: func(t *testing.T) consumertest.Broker {
						spec := rabbitmq.QueueSpec{Quorum: quorum, SingleActiveConsumer: ordered}
						return newSuiteBroker(t, site(t), rabbitmq.SubscriberConfig{Spec: spec, Ordered: ordered})
					},
					Features: can,
					Select: func(name string) bool {
						if want, only := appliesTo[name]; only {
							return ordered == want
						}
						return matrix.Dealt(name, (i+j)%2, 2)
					},
					Run: run,
				})
			})
		}
	}
}

const restartCase = "the broker restarts"

// sharedOrOwn gives each case the shared server, unless the case restarts it. Cases that do use a second server.
func sharedOrOwn(t *testing.T, url string) func(t *testing.T) subscriberSite {
	var using sync.Mutex
	own := sync.OnceValue(func() *testrabbitmq.Own { return testrabbitmq.Start(t) })
	return func(t *testing.T) subscriberSite {
		if !strings.HasSuffix(t.Name(), strings.ReplaceAll(restartCase, " ", "_")) {
			return realSubscriberSite(url)
		}
		using.Lock()
		t.Cleanup(using.Unlock)
		s := realSubscriberSite(own().URL)
		s.restart = own().Restart
		return s
	}
}

// subscriberSite is a server to receive from.
type subscriberSite struct {
	dial    rabbitmq.Dialer
	name    func(t *testing.T) string // of a queue that is deleted at the end
	gate    func(t *testing.T) (dial rabbitmq.Dialer, shut func())
	left    func(ctx context.Context, queues []string) (int, error)
	restart func(context.Context) error
}

func realSubscriberSite(url string) subscriberSite {
	tally := newTally(dialer(url))
	return subscriberSite{
		dial: tally.dial(dialer(url)),
		name: func(t *testing.T) string {
			name := testrabbitmq.QueueName(t, url)
			t.Cleanup(func() { deleteRetryQueues(t, url, name) })
			return name
		},
		gate: func(t *testing.T) (rabbitmq.Dialer, func()) {
			p := newProxy(t, url)
			return tally.dial(rabbitmq.Dial(p.url, amqp.Config{})), func() {
				again := p.close()
				time.AfterFunc(revoked, again)
			}
		},
		left: tally.left,
	}
}

// revoked is how long a subscriber that has lost its messages is cut off. If it came back earlier, it might get them
// again before any other subscriber.
const revoked = 3 * time.Minute

// fakeGate dials s, unless it is shut for a while.
func fakeGate(s *rabbitmqtest.Server) (rabbitmq.Dialer, func()) {
	var mu sync.Mutex
	var open time.Time
	dial := func(ctx context.Context) (rabbitmq.Connection, error) {
		mu.Lock()
		defer mu.Unlock()
		if time.Now().Before(open) {
			return nil, errors.New("shut")
		}
		return s.Dial(ctx)
	}
	return dial, func() {
		mu.Lock()
		defer mu.Unlock()
		open = time.Now().Add(revoked)
		s.Cut()
	}
}

// deleteRetryQueues removes what a Subscriber has made and leaves.
func deleteRetryQueues(t *testing.T, url, queue string) {
	conn, err := amqp.Dial(url)
	if err != nil {
		t.Error(err)
		return
	}
	defer conn.Close()
	ch, err := conn.Channel()
	if err != nil {
		t.Error(err)
		return
	}
	for _, name := range retryQueues(queue) {
		if _, err := ch.QueueDelete(name, false, false, false); err != nil {
			t.Error(err)
		}
	}
}

// retryQueues names the retry queues for delays of up to a minute.
func retryQueues(queue string) (names []string) {
	for step := 1000; step <= 64000; step *= 2 {
		names = append(names, fmt.Sprintf("%s.txonce.retry.%d", queue, step))
	}
	return names
}

// suiteBroker is a queue as a consumertest.Broker.
type suiteBroker struct {
	subscriberSite
	t     *testing.T
	cfg   rabbitmq.SubscriberConfig
	mu    sync.Mutex
	shuts []func()
	sent  int
}

var (
	_ consumertest.Broker    = (*suiteBroker)(nil)
	_ consumertest.Restarter = (*suiteBroker)(nil)
	_ consumertest.Revoker   = (*suiteBroker)(nil)
	_ consumertest.Tracer    = (*suiteBroker)(nil)
)

func newSuiteBroker(t *testing.T, s subscriberSite, cfg rabbitmq.SubscriberConfig) *suiteBroker {
	cfg.Queue, cfg.Declare = s.name(t), true
	b := &suiteBroker{subscriberSite: s, t: t, cfg: cfg}
	args := amqp.Table{}
	if cfg.Spec.Quorum {
		args["x-queue-type"] = "quorum"
	}
	if cfg.Spec.SingleActiveConsumer {
		args["x-single-active-consumer"] = true
	}
	s.declare(t, func(ch rabbitmq.Channel) error {
		_, err := ch.QueueDeclare(cfg.Queue, true, false, false, false, args)
		if err != nil {
			return err
		}
		return rabbitmq.DeclareRetryQueues(ch, cfg.Queue, time.Second)
	})
	return b
}

// declare prepares the queue before a case begins. For some seconds after RabbitMQ was killed and started again it may
// answer a declaration with INTERNAL_ERROR (3.10, seen): a process of its own has ended. It works when it is sent
// again.
func (s subscriberSite) declare(t *testing.T, do func(rabbitmq.Channel) error) {
	t.Helper()
	for end := time.Now().Add(time.Minute); ; <-time.After(100 * time.Millisecond) {
		var err error
		onChannel(t, s.dial, func(ch rabbitmq.Channel) error {
			err = do(ch)
			return nil
		})
		var internal *amqp.Error
		if err == nil {
			return
		}
		if !errors.As(err, &internal) || internal.Code != amqp.InternalError || time.Now().After(end) {
			t.Fatal(err)
		}
	}
}

// Publish implements consumertest.Broker. Every message has a message-id, as a careful publisher sets it. A refused or
// lost message is sent again before the next one. A confirmed message is never sent again, because no case expects
// that.
func (b *suiteBroker) Publish(ctx context.Context, msgs ...consumer.Message) error {
	var rest []amqp.Publishing
	for _, m := range msgs {
		rest = append(rest, b.publishing(m))
	}
	for end := time.Now().Add(time.Minute); ; {
		var err error
		if rest, err = b.publish(ctx, rest); err == nil || time.Now().After(end) {
			return err
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (b *suiteBroker) publishing(m consumer.Message) amqp.Publishing {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.sent++
	headers := amqp.Table{}
	for name, v := range m.Headers {
		headers[name] = []byte(v)
	}
	if m.OrderingKey != "" {
		headers[rabbitmq.HeaderKey] = m.OrderingKey
	}
	return amqp.Publishing{
		MessageId: fmt.Sprint("message ", b.sent), Headers: headers, Body: m.Payload, DeliveryMode: amqp.Persistent,
		Timestamp: time.Now(), ContentType: "text/plain",
	}
}

// publish sends msgs one after the other. Beside an error it returns those that are not confirmed.
func (b *suiteBroker) publish(ctx context.Context, msgs []amqp.Publishing) (rest []amqp.Publishing, err error) {
	conn, err := b.dial(ctx)
	if err != nil {
		return msgs, err
	}
	defer conn.Close()
	ch, err := conn.Channel()
	if err != nil {
		return msgs, err
	}
	if err := ch.Confirm(false); err != nil {
		return msgs, err
	}
	for i, m := range msgs {
		if taken, err := publishConfirmed(ctx, ch, b.cfg.Queue, m); err != nil || !taken {
			return msgs[i:], cmp.Or(err, errors.New("not confirmed"))
		}
	}
	return nil, nil
}

// Subscriber implements consumertest.Broker.
func (b *suiteBroker) Subscriber(p consumer.Processor, grace time.Duration) (consumertest.Subscriber, error) {
	dial, shut := b.gate(b.t)
	b.mu.Lock()
	b.shuts = append(b.shuts, shut)
	b.mu.Unlock()
	cfg := b.cfg
	cfg.Dial, cfg.Processor, cfg.Grace, cfg.Logger = dial, p, grace, testlog.New(b.t).Logger()
	return rabbitmq.NewSubscriberWithOldRetryQueues(cfg)
}

// Left implements consumertest.Broker.
func (b *suiteBroker) Left(ctx context.Context) (int, error) {
	return b.left(ctx, append(retryQueues(b.cfg.Queue), b.cfg.Queue))
}

// Trace implements consumertest.Tracer.
func (b *suiteBroker) Trace(trace *driver.SourceTrace) { b.cfg.Trace = trace }

// Restart implements consumertest.Restarter.
func (b *suiteBroker) Restart(ctx context.Context) error { return b.restart(ctx) }

// Revoke implements consumertest.Revoker.
func (b *suiteBroker) Revoke(context.Context) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, shut := range b.shuts {
		shut()
	}
	return nil
}
