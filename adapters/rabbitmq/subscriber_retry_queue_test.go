package rabbitmq_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/txonce/txonce/adapters/rabbitmq"
	"github.com/txonce/txonce/adapters/rabbitmq/internal/rabbitmqtest"
	"github.com/txonce/txonce/consumer"
)

// TestRetryQueueDoesNotConfirm: nothing is sent to that queue for a while, its messages wait in memory, and other retry
// queues go on.
func TestRetryQueueDoesNotConfirm(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := fake(t, rabbitmqtest.Config{})
		p := &answers{say: func(_ context.Context, m *consumer.Message) error {
			if m.Attempt < 4 {
				after := time.Second
				if strings.HasPrefix(m.ID, "slow") {
					after = 4 * time.Second
				}
				return &consumer.RetryError{Err: errors.New("not yet"), After: after}
			}
			return nil
		}}
		var copies atomic.Int32
		s.OnPublish(func(sent rabbitmqtest.Publish) rabbitmqtest.Fate {
			if strings.HasSuffix(sent.Key, ".retry.4000") {
				copies.Add(1)
				return rabbitmqtest.Withhold
			}
			return rabbitmqtest.Take
		})
		b := subscribe(t, s, rabbitmq.SubscriberConfig{Processor: p})
		handled := func(id string) (done time.Time) {
			p.mu.Lock()
			defer p.mu.Unlock()
			for i, m := range p.got {
				if m.ID == id && m.Attempt == 4 {
					done = p.at[i]
				}
			}
			return done
		}
		send(t, s.Dial, workQueue, amqp.Publishing{MessageId: "slow"})
		lapse(10 * time.Second)
		send(t, s.Dial, workQueue, amqp.Publishing{MessageId: "quick"})
		lapse(10 * time.Second)
		if handled("quick").IsZero() {
			t.Error("a queue that does not confirm holds up another")
		}
		send(t, s.Dial, workQueue, amqp.Publishing{MessageId: "slow 2"})
		lapse(3 * time.Minute)
		if handled("slow").IsZero() || handled("slow 2").IsZero() {
			t.Errorf("not handled to its end: %+v", p.all())
		}
		if n := copies.Load(); n == 0 || n > 12 { // 145 where it does not rest
			t.Errorf("%d copies were sent to a queue that does not confirm; want a few", n)
		}
		if err := b.stop(); err != nil {
			t.Error(err)
		}
	})
}

// TestWithoutRetryQueues: when retry queues cannot be declared, messages to be retried wait in memory, and this is
// logged once.
func TestWithoutRetryQueues(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := fake(t, rabbitmqtest.Config{})
		for _, q := range retryQueues(workQueue) {
			s.DeleteQueue(q)
		}
		s.Deny(func(a rabbitmqtest.Access) bool { return a.Operation == "configure" })
		p := &answers{}
		p.say = func(context.Context, *consumer.Message) error {
			if len(p.all()) < 5 {
				return &consumer.RetryError{Err: errors.New("not yet"), After: 30 * time.Second}
			}
			return nil
		}
		send(t, s.Dial, workQueue, amqp.Publishing{MessageId: "m"})
		b := subscribe(t, s, rabbitmq.SubscriberConfig{Processor: p})
		lapse(10 * time.Minute)
		if got := p.all(); len(got) != 5 || got[4].Attempt != 5 {
			t.Errorf("%d deliveries, want 5 that are counted", len(got))
		}
		if n := strings.Count(b.log.String(), "no retry queue"); n != 1 {
			t.Errorf("warned %d times, want once", n)
		}
		nothingLeft(t, s)
	})
}

// TestNewRetryQueueRests: a crash could lose a retry queue that was made a moment ago, so it is not used yet, whichever
// process made it.
func TestNewRetryQueueRests(t *testing.T) {
	t.Parallel()
	for _, maker := range []string{"this Subscriber", "another"} {
		t.Run(maker, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := fake(t, rabbitmqtest.Config{})
				if maker == "this Subscriber" {
					for _, q := range retryQueues(workQueue) {
						s.DeleteQueue(q)
					}
				}
				began := time.Now()
				var first atomic.Int64
				s.OnPublish(func(sent rabbitmqtest.Publish) rabbitmqtest.Fate {
					if strings.Contains(sent.Key, ".retry.") {
						first.CompareAndSwap(0, int64(time.Since(began)))
					}
					return rabbitmqtest.Take
				})
				p := &answers{say: func(_ context.Context, m *consumer.Message) error {
					if m.Attempt < 20 {
						return &consumer.RetryError{Err: errors.New("not yet"), After: time.Second}
					}
					return nil
				}}
				send(t, s.Dial, workQueue, amqp.Publishing{MessageId: "m"})
				subscribeAnew(t, s, rabbitmq.SubscriberConfig{Processor: p})
				lapse(time.Minute)
				if len(p.all()) != 20 || first.Load() < int64(10*time.Second) {
					t.Errorf("%d deliveries, want 20; the queue was used after %v, want 10 s at the least",
						len(p.all()), time.Duration(first.Load()))
				}
				nothingLeft(t, s)
			})
		})
	}
}

// TestRetryQueueDeleted: a copy that no queue takes does not count, and the original is not acknowledged.
func TestRetryQueueDeleted(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := fake(t, rabbitmqtest.Config{})
		p := &answers{say: func(_ context.Context, m *consumer.Message) error {
			if m.Attempt < 3 {
				return &consumer.RetryError{Err: errors.New("not yet"), After: time.Second}
			}
			return nil
		}}
		b := subscribe(t, s, rabbitmq.SubscriberConfig{Processor: p})
		send(t, s.Dial, workQueue, amqp.Publishing{MessageId: "before"})
		lapse(10 * time.Second)
		if n := len(p.all()); n != 3 {
			t.Fatalf("%d deliveries, want 3: the Subscriber has to know the retry queue", n)
		}
		s.DeleteQueue(rabbitmq.RetryQueues(workQueue)[0])
		send(t, s.Dial, workQueue, amqp.Publishing{MessageId: "after"})
		lapse(time.Minute)
		done := false
		for _, m := range p.all() {
			done = done || m.ID == "after" && m.Attempt >= 3
		}
		if !done || !strings.Contains(b.log.String(), "no queue took the copy") {
			t.Errorf("handled to its end: %v; the log:\n%s", done, b.log)
		}
		if _, there := s.Queue(rabbitmq.RetryQueues(workQueue)[0]); !there {
			t.Error("the retry queue was not made again")
		}
		if err := b.stop(); err != nil {
			t.Error(err)
		}
		nothingLeft(t, s)
	})
}

// TestRetryQueues: the list contains every queue that a Subscriber may declare.
func TestRetryQueues(t *testing.T) {
	s := rabbitmqtest.NewServer(rabbitmqtest.Config{})
	names := rabbitmq.RetryQueues(workQueue)
	onChannel(t, s.Dial, func(ch rabbitmq.Channel) error {
		return rabbitmq.DeclareRetryQueues(ch, workQueue, 365*24*time.Hour)
	})
	for _, name := range names {
		if _, there := s.Queue(name); !there {
			t.Errorf("%s is named, and never made", name)
		}
		s.DeleteQueue(name)
	}
	if len(names) != 23 || names[0] != "work.txonce.retry.1000" || names[22] != "work.txonce.retry.2147483647" {
		t.Errorf("%d names, from %s to %s", len(names), names[0], names[len(names)-1])
	}
}
