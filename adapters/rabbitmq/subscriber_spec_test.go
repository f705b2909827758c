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
	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/internal/test/rabbitmqtest"
	"github.com/txonce/txonce/internal/test/testdb"
)

// specCases are queues that differ from the zero Spec.
var specCases = []struct {
	name string
	args amqp.Table
	cfg  rabbitmq.SubscriberConfig
	want string // empty: Run goes on
}{
	{name: "a limit that drops", args: amqp.Table{"x-queue-type": "quorum", "x-delivery-limit": 5}, want: "drops a message that was delivered more than 5 times"},
	{
		name: "allowed", args: amqp.Table{"x-queue-type": "quorum", "x-delivery-limit": 5},
		cfg: rabbitmq.SubscriberConfig{AcceptedRisks: []rabbitmq.Risk{rabbitmq.RiskDeliveryLimit}},
	},
	{name: "dead letters", args: amqp.Table{
		"x-queue-type": "quorum", "x-delivery-limit": 5, "x-dead-letter-exchange": "amq.fanout", "x-dead-letter-routing-key": "k", "x-max-length": 1000,
	}},
	{name: "a classic one with everything", args: amqp.Table{
		"x-message-ttl": 7_200_000, "x-dead-letter-exchange": "amq.fanout", "x-max-length": 1000, "x-overflow": "reject-publish", "x-expires": 3_600_000,
		"x-single-active-consumer": true,
	}, cfg: rabbitmq.SubscriberConfig{Ordered: true, Spec: rabbitmq.QueueSpec{SingleActiveConsumer: true}}},
	{
		name: "a time to live beyond the window", args: amqp.Table{"x-message-ttl": 7_200_000}, cfg: rabbitmq.SubscriberConfig{Processor: windowed{}},
		want: "keeps messages for up to 2h0m0s",
	},
	{name: "a time to live that drops messages", args: amqp.Table{"x-message-ttl": 7_200_000}, want: "drops a message that was not received for 2h0m0s"},
	{
		name: "several active consumers", cfg: rabbitmq.SubscriberConfig{Ordered: true, Spec: rabbitmq.QueueSpec{SingleActiveConsumer: true}},
		want: "without x-single-active-consumer",
	},
}

// TestSpecIsRead: Run believes the queue and not its Spec.
func TestSpecIsRead(t *testing.T) {
	t.Parallel()
	run := func(t *testing.T, dial rabbitmq.Dialer, queue string, cfg rabbitmq.SubscriberConfig, want string) {
		consuming := make(chan struct{}, 8)
		cfg.Dial, cfg.Queue, cfg.Trace = dial, queue, &consumer.SourceTrace{Subscribed: func(context.Context, consumer.SourceEvent) { consuming <- struct{}{} }}
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
			t.Run("fake", func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					s := rabbitmqtest.NewServer(rabbitmqtest.Config{})
					declare(t, s.Dial, "q", test.args)
					run(t, s.Dial, "q", test.cfg, test.want)
					s.DeleteQueue("q") // it may expire
				})
			})
			t.Run("rabbitmq", func(t *testing.T) {
				t.Parallel()
				url := testdb.RabbitMQ(t)
				run(t, dialer(url), testdb.Queue(t, url, test.args), test.cfg, test.want)
			})
		})
	}
}

// TestSpecIsNotBelieved: where the queue's arguments may not be read, a delivery that only a quorum queue makes ends Run before messages
// reach the limit.
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
			return &consumer.RetryError{Err: ctx.Err(), Uncounted: true}
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
		if b.err == nil || !strings.Contains(b.err.Error(), "the queue is a quorum queue, and Spec says that it is not") {
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
			t.Errorf("a second after the stop the queue holds %+v; want %d ready, and the one in work", state, messages-1)
		}
		if err := b.stop(); err != nil {
			t.Error(err)
		}
		if state, _ := s.Queue(workQueue); state.Ready != messages-1 || state.Unacked != 0 || len(p.all()) != 1 {
			t.Errorf("after the end the queue holds %+v and %d were handled; want %d, and 1", state, len(p.all()), messages-1)
		}
	})
}

// TestLossesCountForNoAttempt: only a failure of the handler is an attempt. Lost connections, channels and processes are not, although a
// quorum queue counts them.
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
						return &consumer.RetryError{Err: ctx.Err(), Uncounted: true}
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
