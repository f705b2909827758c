package rabbitmq_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/txonce/txonce/adapters/rabbitmq"
	"github.com/txonce/txonce/adapters/rabbitmq/internal/rabbitmqtest"
	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/consumer/driver"
	"github.com/txonce/txonce/internal/test/brokers/testrabbitmq"
)

// specCases are queues that differ from the zero Spec.
var specCases = []struct {
	name string
	args amqp.Table
	cfg  rabbitmq.SubscriberConfig
	want string // empty: Run goes on

	autoDelete, transient bool
	onlyReal              bool // the fake does not have such queues
}{
	{
		name: "a limit that drops", args: amqp.Table{"x-queue-type": "quorum", "x-delivery-limit": 5},
		want: "drops a message that was delivered more than 5 times",
	},
	{
		name: "allowed", args: amqp.Table{"x-queue-type": "quorum", "x-delivery-limit": 5},
		cfg: rabbitmq.SubscriberConfig{AcceptedRisks: []rabbitmq.Risk{rabbitmq.RiskDeliveryLimit}},
	},
	{name: "dead letters", args: amqp.Table{
		"x-queue-type": "quorum", "x-delivery-limit": 5, "x-dead-letter-exchange": "amq.fanout",
		"x-dead-letter-routing-key": "k", "x-max-length": 1000,
	}},
	{name: "a classic one with everything", args: amqp.Table{
		"x-message-ttl": 7_200_000, "x-dead-letter-exchange": "amq.fanout", "x-max-length": 1000,
		"x-overflow": "reject-publish", "x-expires": 3_600_000,
		"x-single-active-consumer": true,
	}, cfg: rabbitmq.SubscriberConfig{
		AcceptedRisks: []rabbitmq.Risk{rabbitmq.RiskTemporaryQueue}, Ordered: true,
		Spec: rabbitmq.QueueSpec{SingleActiveConsumer: true},
	}},
	{
		name: "a time to live beyond the window", args: amqp.Table{"x-message-ttl": 7_200_000},
		cfg:  rabbitmq.SubscriberConfig{Processor: windowed{}},
		want: "keeps messages for up to 2h0m0s",
	},
	{
		name: "a time to live that drops messages", args: amqp.Table{"x-message-ttl": 7_200_000},
		want: "drops a message that was not received for 2h0m0s",
	},
	{
		name: "several active consumers", cfg: rabbitmq.SubscriberConfig{
			Ordered: true,
			Spec:    rabbitmq.QueueSpec{SingleActiveConsumer: true},
		},
		want: "without x-single-active-consumer",
	},
	{
		name: "a maximum length", args: amqp.Table{"x-max-length": 10},
		want: "drops messages when it is full (x-max-length is 10)",
	},
	{
		name: "a maximum length of a quorum queue", args: amqp.Table{"x-queue-type": "quorum", "x-max-length": 10},
		want: "accept rabbitmq.RiskMaxLength",
	},
	{
		name: "a maximum of bytes", args: amqp.Table{"x-max-length-bytes": 1000, "x-overflow": "drop-head"},
		want: "(x-max-length-bytes is 1000)", onlyReal: true,
	},
	{name: "a maximum length that refuses", args: amqp.Table{"x-max-length": 10, "x-overflow": "reject-publish"}},
	{name: "a maximum length that refuses to dead letters", args: amqp.Table{"x-max-length": 10, "x-overflow": "reject-publish-dlx"}},
	{
		name: "a maximum length, accepted", args: amqp.Table{"x-max-length": 10},
		cfg: rabbitmq.SubscriberConfig{AcceptedRisks: []rabbitmq.Risk{rabbitmq.RiskMaxLength}},
	},
	{name: "a maximum length, and a policy that refuses", args: amqp.Table{"x-max-length": 10}, cfg: rabbitmq.SubscriberConfig{
		Spec: rabbitmq.QueueSpec{Args: amqp.Table{"x-overflow": "reject-publish"}},
	}},
	{
		name: "an expiring queue", args: amqp.Table{
			"x-expires": 3_600_000, "x-dead-letter-exchange": "amq.fanout",
			"x-dead-letter-routing-key": "k",
		},
		want: "deletes queue q with its messages when it had no consumer for 3600000 ms (x-expires)",
	},
	{name: "auto-delete", autoDelete: true, want: "when its last consumer ends (auto-delete)"},
	{name: "auto-delete, accepted", autoDelete: true, cfg: rabbitmq.SubscriberConfig{AcceptedRisks: []rabbitmq.Risk{rabbitmq.RiskTemporaryQueue}}},
	{name: "not durable", transient: true, want: "when the server restarts (not durable)"},
	{name: "a stream", args: amqp.Table{"x-queue-type": "stream"}, want: "the queue is a stream", onlyReal: true},
	{
		name: "a stream with all risks accepted", args: amqp.Table{
			"x-queue-type":       "stream",
			"x-max-length-bytes": 1_000_000,
		}, want: "the queue is a stream", onlyReal: true,
		cfg: rabbitmq.SubscriberConfig{
			AcceptedRisks: []rabbitmq.Risk{
				rabbitmq.RiskDeliveryLimit, rabbitmq.RiskMaxLength,
				rabbitmq.RiskTemporaryQueue,
			},
			Spec: rabbitmq.QueueSpec{
				Quorum: true, DeliveryLimit: 5,
				DeadLetters: &rabbitmq.DeadLetters{Exchange: "amq.fanout", Key: "k"},
			},
		},
	},
}

// TestSpecIsRead: Run believes the queue and not its Spec.
func TestSpecIsRead(t *testing.T) {
	t.Parallel()
	run := func(t *testing.T, dial rabbitmq.Dialer, queue string, cfg rabbitmq.SubscriberConfig, want string) {
		consuming := make(chan struct{}, 8)
		cfg.Dial, cfg.Queue, cfg.Trace = dial, queue,
			&driver.SourceTrace{Subscribed: func(context.Context, driver.SourceEvent) { consuming <- struct{}{} }}
		if cfg.Processor == nil {
			cfg.Processor = &answers{}
		}
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		ended := make(chan error, 1)
		go func() { ended <- ownSubscriber(t, cfg).Run(ctx) }()
		select {
		case <-consuming:
			if want != "" {
				t.Errorf("Run begins; want %q", want)
			}
			stop()
			if err := <-ended; err != nil {
				t.Error(err)
			}
		case err := <-ended:
			if want == "" || err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("Run = %v; want %q", err, want)
			}
		}
	}
	for _, test := range specCases {
		t.Run(test.name, func(t *testing.T) {
			create := func(t *testing.T, dial rabbitmq.Dialer, queue string) {
				onChannel(t, dial, func(ch rabbitmq.Channel) error {
					_, err := ch.QueueDeclare(queue, !test.transient, test.autoDelete, false, false, test.args)
					return err
				})
			}
			if !test.onlyReal {
				t.Run("fake", func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						s := rabbitmqtest.NewServer(rabbitmqtest.Config{})
						create(t, s.Dial, "q")
						run(t, s.Dial, "q", test.cfg, test.want)
						s.DeleteQueue("q") // it may expire
					})
				})
			}
			t.Run("rabbitmq", func(t *testing.T) {
				t.Parallel()
				url := testrabbitmq.Server(t)
				queue := testrabbitmq.QueueName(t, url)
				create(t, dialer(url), queue)
				run(t, dialer(url), queue, test.cfg, strings.ReplaceAll(test.want, "queue q ", "queue "+queue+" "))
			})
		})
	}
}

// TestSpecIsNotBelieved: where the queue's arguments may not be read, a delivery that only a quorum queue makes ends
// Run before messages reach the limit.
func TestSpecIsNotBelieved(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := rabbitmqtest.NewServer(rabbitmqtest.Config{})
		declare(t, s.Dial, workQueue, amqp.Table{"x-queue-type": "quorum", "x-delivery-limit": 5})
		s.Deny(func(a rabbitmqtest.Access) bool { return a.Operation == "configure" })
		const messages = 10
		for i := range messages {
			send(t, s.Dial, workQueue, amqp.Publishing{MessageId: fmt.Sprint(i)})
		}
		p := &answers{say: func(ctx context.Context, _ *consumer.Message) error {
			<-ctx.Done()
			return &consumer.RetryError{Err: ctx.Err(), Held: true}
		}}
		b := subscribe(t, s, rabbitmq.SubscriberConfig{Processor: p, Grace: time.Second})
		for range 7 {
			lapse(5 * time.Second)
			s.Cut()
		}
		lapse(time.Minute)
		select {
		case <-b.done:
		default:
			t.Error("Run goes on")
			b.cancel()
			<-b.done
		}
		if b.err == nil || !strings.Contains(b.err.Error(),
			"the queue is a quorum queue, and Spec says that it is not") {
			t.Errorf("Run = %v; want that Spec is wrong", b.err)
		}
		if state, _ := s.Queue(workQueue); state.Ready != messages {
			t.Errorf("the queue holds %+v; want all %d messages", state, messages)
		}
	})
}

// TestStopGivesBackAtOnce: messages that are not being handled go back at once, while a handler still runs.
func TestStopGivesBackAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := fake(t, rabbitmqtest.Config{})
		const messages = 50
		for i := range messages {
			send(t, s.Dial, workQueue, amqp.Publishing{MessageId: fmt.Sprint(i)})
		}
		p := &answers{say: func(context.Context, *consumer.Message) error {
			lapse(20 * time.Second)
			return nil
		}}
		b := subscribe(t, s, rabbitmq.SubscriberConfig{Processor: p, Grace: time.Minute, Concurrency: 1, MaxBatch: 1})
		lapse(time.Second)
		if state, _ := s.Queue(workQueue); state.Unacked != messages {
			t.Fatalf("the queue holds %+v; want that all %d are prefetched", state, messages)
		}
		b.cancel()
		lapse(time.Second)
		if state, _ := s.Queue(workQueue); state.Ready != messages-1 || state.Unacked != 1 {
			t.Errorf("a second after the stop the queue holds %+v; want %d ready, and the one in work", state,
				messages-1)
		}
		if err := b.stop(); err != nil {
			t.Error(err)
		}
		if state, _ := s.Queue(workQueue); state.Ready != messages-1 || state.Unacked != 0 || len(p.all()) != 1 {
			t.Errorf("after the end the queue holds %+v and %d were handled; want %d, and 1", state, len(p.all()),
				messages-1)
		}
	})
}

// TestLossesCountForNoAttempt: only a failure of the handler is an attempt. Lost connections, channels and processes
// are not, although a quorum queue counts them.
func TestLossesCountForNoAttempt(t *testing.T) {
	t.Parallel()
	for _, quorum := range []bool{false, true} {
		t.Run(fmt.Sprintf("quorum %v", quorum), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := rabbitmqtest.NewServer(rabbitmqtest.Config{})
				args := amqp.Table{}
				if quorum {
					args["x-queue-type"] = "quorum"
				}
				declare(t, s.Dial, workQueue, args)
				onChannel(t, s.Dial, func(ch rabbitmq.Channel) error { return rabbitmq.DeclareRetryQueues(ch, workQueue, time.Second) })
				p := &answers{}
				p.say = func(ctx context.Context, _ *consumer.Message) error {
					switch n := len(p.all()); {
					case n <= 4:
						<-ctx.Done()
						return &consumer.RetryError{Err: ctx.Err(), Held: true}
					case n <= 7:
						return &consumer.RetryError{Err: errors.New("not yet"), After: time.Second}
					}
					return nil
				}
				send(t, s.Dial, workQueue, amqp.Publishing{MessageId: "m"})
				b := subscribe(t, s, rabbitmq.SubscriberConfig{Processor: p, Grace: time.Second})
				for range 4 {
					lapse(20 * time.Second)
					s.Cut()
				}
				lapse(time.Minute)
				if err := b.stop(); err != nil {
					t.Error(err)
				}
				var attempts []int
				for _, m := range p.all() {
					attempts = append(attempts, m.Attempt)
				}
				if want := "[1 1 1 1 1 2 3 4]"; fmt.Sprint(attempts) != want {
					t.Errorf("attempts %v; want %s: four losses, three failures, and then it is done", attempts, want)
				}
			})
		})
	}
}
