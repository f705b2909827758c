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
	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/internal/test/brokers/testrabbitmq"
	"github.com/txonce/txonce/internal/test/testlog"
)

const (
	expiration = 500 * time.Millisecond
	expiring   = 5 // messages
)

// sendExpiring sends messages that are received at once.
func sendExpiring(t *testing.T, dial rabbitmq.Dialer, queue string) {
	t.Helper()
	for i := range expiring {
		send(t, dial, queue, amqp.Publishing{MessageId: fmt.Sprint(i), Expiration: fmt.Sprint(expiration.Milliseconds())})
	}
}

// databaseAway is a Processor whose database is away until it is back.
func databaseAway(p *answers) (back *atomic.Bool) {
	back = &atomic.Bool{}
	p.say = func(context.Context, *consumer.Message) error {
		if back.Load() {
			return nil
		}
		return &consumer.RetryError{Err: errors.New("the database is away"), After: 50 * time.Millisecond, Held: true}
	}
	return back
}

// TestAStopDropsNoExpiration: messages that were received in time, and expired while the database was away, are handled
// after a stop.
func TestAStopDropsNoExpiration(t *testing.T) {
	t.Parallel()
	stopped := func(t *testing.T, dial rabbitmq.Dialer, queue string, quorum bool, ready func(queue string) int) {
		declare(t, dial, queue+".probe", nil)
		p := &answers{}
		back := databaseAway(p)
		start := func() (stop func()) {
			ctx, cancel := context.WithCancel(t.Context())
			s := ownSubscriber(t, rabbitmq.SubscriberConfig{
				Dial: dial, Queue: queue, Processor: p,
				Spec: rabbitmq.QueueSpec{Quorum: quorum},
			})
			done := make(chan error, 1)
			go func() { done <- s.Run(ctx) }()
			return func() {
				cancel()
				if err := <-done; err != nil {
					t.Error(err)
				}
			}
		}
		stop := start()
		sendExpiring(t, dial, queue)
		await(t, "all messages with the Subscriber", func() bool { return handled(p) == expiring })
		sendExpiring(t, dial, queue+".probe")
		await(t, "the end of their time", func() bool { return ready(queue+".probe") == 0 })
		stop()
		back.Store(true)
		p.mu.Lock()
		p.got = nil
		p.mu.Unlock()
		stop = start()
		await(t, "all messages, as they were received in time", func() bool { return handled(p) == expiring })
		stop()
		for _, m := range p.all() {
			if m.Attempt != 1 || m.Headers["expiration"] != fmt.Sprint(expiration.Milliseconds()) || m.Topic != queue {
				t.Errorf("the message is %+v after the stop; want its first attempt, and the properties that it was sent with", m)
			}
		}
		if n := ready(queue); n != 0 {
			t.Errorf("%d messages are left", n)
		}
	}
	for _, kind := range []string{"classic", "quorum"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			args := amqp.Table{"x-queue-type": kind}
			t.Run("fake", func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					s := rabbitmqtest.NewServer(rabbitmqtest.Config{})
					declare(t, s.Dial, "q", args)
					stopped(t, s.Dial, "q", kind == "quorum", func(queue string) int {
						state, _ := s.Queue(queue)
						return state.Ready + state.Unacked
					})
				})
			})
			t.Run("rabbitmq", func(t *testing.T) {
				t.Parallel()
				url := testrabbitmq.Server(t)
				queue := testrabbitmq.Queue(t, url, args)
				t.Cleanup(func() {
					deleteRetryQueues(t, url, queue)
					deleteQueue(t, url, queue+".probe")
				})
				stopped(t, dialer(url), queue, kind == "quorum",
					func(queue string) int { return testrabbitmq.Ready(t, url, queue) })
			})
		})
	}
}

// handled returns how many different messages p got.
func handled(p *answers) int {
	ids := map[string]bool{}
	for _, m := range p.all() {
		ids[m.ID] = true
	}
	return len(ids)
}

func await(t *testing.T, what string, there func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !there(); <-time.After(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("waited in vain for: %s", what)
		}
	}
}

// TestDeferredAsItExpires: when the database is away, a message that expires waits in a retry queue, where a lost
// connection does not drop it; and when Run ends although the Processor gave up on a message, that message stays in the
// queue.
func TestDeferredAsItExpires(t *testing.T) {
	t.Parallel()
	t.Run("lost", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := fake(t, rabbitmqtest.Config{})
			p := &answers{}
			back := databaseAway(p)
			b := subscribe(t, s, rabbitmq.SubscriberConfig{Processor: p})
			sendExpiring(t, s.Dial, workQueue)
			lapse(2 * expiration) // their second failures find the retry queue
			back.Store(true)
			s.Cut()
			lapse(time.Minute)
			if err := b.stop(); err != nil || handled(p) != expiring {
				t.Errorf("%d messages got to the Processor, Run = %v", handled(p), err)
			}
			done := map[string]bool{}
			for i, m := range p.all() {
				done[m.ID] = done[m.ID] || p.at[i].Sub(p.at[0]) > 2*expiration
			}
			for id, again := range done {
				if !again {
					t.Errorf("message %s was dropped", id)
				}
			}
			if n := strings.Count(b.log.String(), "a message has an expiration, and the queue has no dead letter exchange"); n != 1 {
				t.Errorf("warned %d times; want once:\n%s", n, b.log)
			}
			nothingLeft(t, s)
		})
	})
	t.Run("rejected", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := fake(t, rabbitmqtest.Config{})
			b := subscribe(t, s, rabbitmq.SubscriberConfig{Processor: &answers{say: func(context.Context, *consumer.Message) error {
				lapse(2 * expiration)
				return errors.New("poison")
			}}})
			sendExpiring(t, s.Dial, workQueue)
			<-b.done
			lapse(time.Minute)
			if left := s.Messages(workQueue); len(left) != expiring {
				t.Errorf("the queue holds %v; want all %d messages", left, expiring)
			}
		})
	})
}

// TestFailureAtTheEndDoesNotExpire: a message that fails while Run ends comes back although its retry queue cannot be
// used yet, and its failure is counted.
func TestFailureAtTheEndDoesNotExpire(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := fake(t, rabbitmqtest.Config{})
		p := &answers{}
		p.say = func(context.Context, *consumer.Message) error {
			if handled(p) <= expiring && len(p.all()) > expiring {
				return nil
			}
			lapse(2 * expiration)
			return &consumer.RetryError{Err: errors.New("not yet"), After: time.Second}
		}
		b := subscribeAnew(t, s, rabbitmq.SubscriberConfig{Processor: p, Concurrency: expiring, MaxBatch: 1})
		sendExpiring(t, s.Dial, workQueue)
		lapse(expiration)
		if err := b.stop(); err != nil {
			t.Error(err)
		}
		lapse(time.Minute)
		subscribeAnew(t, s, rabbitmq.SubscriberConfig{Processor: p})
		lapse(time.Minute)
		if got := p.all(); len(got) != 2*expiring || got[len(got)-1].Attempt != 2 {
			t.Errorf("%d deliveries; want %d that fail, and the same again as attempt 2", len(got), expiring)
		}
		nothingLeft(t, s)
	})
}

// TestExpirationCannotBeRemoved: a warning names what the server may drop; in Ordered mode nothing is copied, and the
// warning says so.
func TestExpirationCannotBeRemoved(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		fate   rabbitmqtest.Fate
		spec   rabbitmq.QueueSpec
		order  bool
		copied bool
		want   []string
		no     string
	}{
		"refused": {fate: rabbitmqtest.Nack, copied: true, want: []string{"the server did not take a copy without one", "crashes before", `position=work/m`}},
		"ordered": {
			spec: rabbitmq.QueueSpec{SingleActiveConsumer: true}, order: true,
			want: []string{"or Run ends before the message is handled"}, no: "did not take a copy",
		},
		"dead letters": {
			spec:   rabbitmq.QueueSpec{DeadLetters: &rabbitmq.DeadLetters{Exchange: "amq.fanout", Key: "k"}},
			copied: true, no: "a message has an expiration",
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := rabbitmqtest.NewServer(rabbitmqtest.Config{})
				p := &answers{}
				databaseAway(p)
				log := &testlog.Log{}
				sub, err := rabbitmq.NewSubscriber(rabbitmq.SubscriberConfig{
					Dial: s.Dial, Queue: workQueue, Processor: p, Declare: true, Spec: test.spec, Ordered: test.order,
					Logger: log.Logger(),
				})
				if err != nil {
					t.Fatal(err)
				}
				ctx, stop := context.WithCancel(t.Context())
				done := make(chan error, 1)
				go func() { done <- sub.Run(ctx) }()
				lapse(time.Second)
				send(t, s.Dial, workQueue, amqp.Publishing{MessageId: "m", Expiration: fmt.Sprint(expiration.Milliseconds())})
				copied := false
				s.OnPublish(func(rabbitmqtest.Publish) rabbitmqtest.Fate { copied = true; return test.fate })
				lapse(2 * expiration)
				stop()
				if err := <-done; err != nil {
					t.Error(err)
				}
				for _, want := range test.want {
					if !strings.Contains(log.String(), want) {
						t.Errorf("want %q in the log:\n%s", want, log)
					}
				}
				if test.no != "" && strings.Contains(log.String(), test.no) || copied != test.copied {
					t.Errorf("copied: %v; want %v, and not %q in the log:\n%s", copied, test.copied, test.no, log)
				}
			})
		})
	}
}
