package rabbitmq_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/txonce/txonce/adapters/rabbitmq"
	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/consumer/driver"
	"github.com/txonce/txonce/internal/test/brokers/testrabbitmq"
	"github.com/txonce/txonce/internal/test/testlog"
)

// subscriptionRefused: errors of Run name the reason.
func subscriptionRefused(t *testing.T, own *testrabbitmq.Own) {
	own.Eval(t, `ok = rabbit_auth_backend_internal:add_user(<<"poor">>, <<"secret">>, <<"test">>)`)
	own.Eval(t, `ok = rabbit_auth_backend_internal:set_permissions(<<"poor">>, <<"/">>, <<"^$">>, <<"^$">>, <<"^$">>, <<"test">>)`)
	queue := testrabbitmq.Queue(t, own.URL, nil)
	for name, test := range map[string]struct{ url, queue, want string }{
		"permission": {strings.Replace(own.URL, "guest:guest", "poor:secret", 1), queue, "grant this user"},
		"password":   {strings.Replace(own.URL, "guest:guest", "guest:wrong", 1), queue, "does not accept this user"},
		"queue":      {own.URL, "nowhere", "set Declare, or create it"},
		"vhost":      {own.URL + "nowhere", queue, "virtual host"},
	} {
		s := ownSubscriber(t, rabbitmq.SubscriberConfig{
			Dial: rabbitmq.Dial(test.url, amqp.Config{}), Queue: test.queue,
			Processor: &answers{},
		})
		if err := s.Run(t.Context()); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: Run = %v; want %q", name, err, test.want)
		}
	}
}

// subscriptionEnds: a queue is deleted, and the server's consumer_timeout runs out.
func subscriptionEnds(t *testing.T, own *testrabbitmq.Own) {
	const timeout = 3 * time.Second
	own.Eval(t, fmt.Sprintf("application:set_env(rabbit, consumer_timeout, %d)", timeout.Milliseconds()))
	own.Eval(t, "application:set_env(rabbit, channel_tick_interval, 500)") // it looks once a minute otherwise
	for kind, args := range map[string]amqp.Table{"classic": nil, "quorum": {"x-queue-type": "quorum"}} {
		t.Run("a "+kind+" queue is deleted", func(t *testing.T) {
			queue := testrabbitmq.Queue(t, own.URL, args)
			consuming := make(chan struct{}, 8)
			s := ownSubscriber(t, rabbitmq.SubscriberConfig{
				Dial: dialer(own.URL), Queue: queue, Processor: &answers{},
				Trace: &driver.SourceTrace{Subscribed: func(context.Context, driver.SourceEvent) { consuming <- struct{}{} }},
			})
			result := make(chan error, 1)
			go func() { result <- s.Run(t.Context()) }()
			select {
			case <-consuming:
			case err := <-result:
				t.Fatalf("Run = %v; want it to consume", err)
			}
			deleteQueue(t, own.URL, queue)
			if err := <-result; err == nil || !strings.Contains(err.Error(), "does not exist, or was deleted") {
				t.Errorf("Run = %v; want that the queue was deleted", err)
			}
		})
		t.Run("a slow message of a "+kind+" queue goes back alone", func(t *testing.T) {
			queue := testrabbitmq.Queue(t, own.URL, args)
			send(t, dialer(own.URL), queue, amqp.Publishing{MessageId: "slow"})
			for i := range 20 {
				send(t, dialer(own.URL), queue, amqp.Publishing{MessageId: fmt.Sprint(i)})
			}
			var claimed sync.Map
			finished := make(chan struct{})
			p := &answers{say: func(ctx context.Context, m *consumer.Message) error {
				if _, again := claimed.LoadOrStore(m.ID, true); again || m.ID != "slow" {
					return nil
				}
				select {
				case <-ctx.Done():
					return ctx.Err()
				case <-time.After(5 * timeout / 2):
					close(finished)
					return nil
				}
			}}
			var lost atomic.Int64
			s := ownSubscriber(t, rabbitmq.SubscriberConfig{
				Dial: dialer(own.URL), Queue: queue, Processor: p, MaxBatch: 1, ConsumerTimeout: timeout,
				Grace: time.Second,
				Trace: &driver.SourceTrace{Lost: func(context.Context, driver.SourceEvent) { lost.Add(1) }},
			})
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			result := make(chan error, 1)
			go func() { result <- s.Run(ctx) }()
			select {
			case <-finished:
			case err := <-result:
				t.Fatalf("Run = %v; want it to go on", err)
			case <-time.After(2 * time.Minute):
				t.Error("the slow handler did not finish within two minutes")
			}
			if n := lost.Load(); n != 0 {
				t.Errorf("%d channels were lost, want none", n)
			}
			cancel()
			if err := <-result; err != nil {
				t.Error(err)
			}
			if n := testrabbitmq.Ready(t, own.URL, queue); n != 0 {
				t.Errorf("%d messages left, want 0", n)
			}
		})
		t.Run("the "+kind+" consumer timeout", func(t *testing.T) {
			queue := testrabbitmq.Queue(t, own.URL, args)
			send(t, dialer(own.URL), queue, amqp.Publishing{MessageId: "m"})
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			cancelled := make(chan struct{})
			p := &answers{}
			p.say = func(ctx context.Context, _ *consumer.Message) error {
				if len(p.all()) > 1 {
					return nil
				}
				<-ctx.Done()
				close(cancelled)
				return nil // too late: this must acknowledge nothing
			}
			acked := make(chan int, 8)
			s := ownSubscriber(t, rabbitmq.SubscriberConfig{
				Dial: dialer(own.URL), Queue: queue, Processor: p, Grace: time.Second, // it is not told the timeout
				Trace: &driver.SourceTrace{Acked: func(_ context.Context, e driver.SourceEvent) { acked <- e.Message.Attempt }},
			})
			result := make(chan error, 1)
			go func() { result <- s.Run(ctx) }()
			select {
			case attempt := <-acked:
				if attempt != 1 {
					t.Errorf("attempt %d was acknowledged; want that no attempt is counted for a channel that was closed", attempt)
				}
			case err := <-result:
				t.Fatalf("Run = %v; want it to go on", err)
			case <-time.After(2 * time.Minute):
				t.Fatal("not delivered again within two minutes")
			}
			select { // before cancel, which would end it too
			case <-cancelled:
			case <-time.After(2 * time.Minute):
				t.Error("the first delivery's handler was not cancelled")
			}
			cancel()
			if err := <-result; err != nil {
				t.Error(err)
			}
			if n := testrabbitmq.Ready(t, own.URL, queue); n != 0 || len(p.all()) < 2 {
				t.Errorf("%d messages left after %d deliveries, want 0 after 2 or more", n, len(p.all()))
			}
		})
	}
}

func ownSubscriber(t *testing.T, cfg rabbitmq.SubscriberConfig) *rabbitmq.Subscriber {
	t.Helper()
	cfg.Logger = testlog.New(t).Logger()
	s, err := rabbitmq.NewSubscriber(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func deleteQueue(t *testing.T, url, queue string) {
	t.Helper()
	conn, err := amqp.Dial(url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	ch, err := conn.Channel()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := ch.QueueDelete(queue, false, false, false); err != nil {
		t.Fatal(err)
	}
}
