package rabbitmq_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/txonce/txonce/adapters/rabbitmq"
	"github.com/txonce/txonce/adapters/rabbitmq/internal/rabbitmqtest"
	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/consumer/driver"
)

// TestNoHotRequeue: a deferred message is not delivered during its 2 s, and afterwards only its Attempt has changed.
// The deferrals are not reported as acknowledgements.
func TestNoHotRequeue(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := fake(t, rabbitmqtest.Config{})
		p := &answers{say: func(_ context.Context, m *consumer.Message) error {
			if m.Attempt < 4 {
				return &consumer.RetryError{Err: errors.New("not yet"), After: 2 * time.Second}
			}
			return nil
		}}
		var acked, returned atomic.Int32
		b := subscribe(t, s, rabbitmq.SubscriberConfig{Processor: p, Trace: &driver.SourceTrace{
			Acked:    func(context.Context, driver.SourceEvent) { acked.Add(1) },
			Returned: func(context.Context, driver.SourceEvent) { returned.Add(1) },
		}})
		// It expires after 3 s in a queue, and is received at once.
		send(t, s.Dial, workQueue, amqp.Publishing{MessageId: "m", Body: []byte("x"), Expiration: "3000", CorrelationId: "c", Headers: amqp.Table{
			"CC": []any{"elsewhere"}, "n": int64(7), "x-death": []any{amqp.Table{"queue": "before", "count": int64(3)}},
		}})
		lapse(9 * time.Second)
		got := p.all()
		if len(got) != 4 {
			t.Fatalf("%d deliveries in 9 s, want 4 at 0, 2, 4 and 6 s", len(got))
		}
		if acked.Load() != 1 || returned.Load() == 0 {
			t.Errorf("%d acknowledgements and %d deferrals are reported of one message that was deferred", acked.Load(),
				returned.Load())
		}
		for i, m := range got {
			if i > 0 && p.at[i].Sub(p.at[i-1]) < 2*time.Second {
				t.Errorf("delivery %d came after %v", i+1, p.at[i].Sub(p.at[i-1]))
			}
			want := got[0]
			want.Attempt, want.Raw, m.Raw = i+1, nil, nil
			if diff := cmp.Diff(want, m); diff != "" {
				t.Errorf("delivery %d (-want +got):\n%s", i+1, diff)
			}
		}
		if err := b.stop(); err != nil {
			t.Error(err)
		}
		nothingLeft(t, s)
	})
}

// TestOneCopyAfterLongBlock: a server takes no copies for longer than ConsumerTimeout. Each original that goes back
// meanwhile is delivered and fails again, and in the end there is one copy of each message.
func TestOneCopyAfterLongBlock(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := fake(t, rabbitmqtest.Config{ConsumerTimeout: 10 * time.Second})
		p := &answers{say: func(_ context.Context, m *consumer.Message) error {
			if m.Attempt < 2 {
				return &consumer.RetryError{Err: errors.New("not yet"), After: time.Second}
			}
			return nil
		}}
		b := subscribe(t, s, rabbitmq.SubscriberConfig{
			Processor: p, ConsumerTimeout: 10 * time.Second,
			Grace: time.Second,
		})
		copies := 0
		send(t, s.Dial, workQueue, amqp.Publishing{MessageId: "a"})
		lapse(100 * time.Millisecond)
		send(t, s.Dial, workQueue, amqp.Publishing{MessageId: "b"})
		s.OnPublish(func(rabbitmqtest.Publish) rabbitmqtest.Fate { copies++; return rabbitmqtest.Take })
		s.Block("low on memory")
		lapse(25 * time.Second)
		if n := len(p.all()); n < 6 {
			t.Errorf("%d deliveries; want that the originals go back and fail again", n)
		}
		s.Unblock()
		lapse(10 * time.Second)
		if state, _ := s.Queue(workQueue); state.Ready+state.Unacked > 0 || copies > 3 {
			// the first one may have been on its way
			t.Errorf("the queue holds %+v after %d copies; want none after one of each message", state, copies)
		}
		if err := b.stop(); err != nil {
			t.Error(err)
		}
	})
}

// TestRetriesWhileBlocked: a server that is short of memory gets one copy and then reports the shortage; it gets no
// more. The other copies wait until the server takes messages again. When Run ends, their originals go back, and Run
// does not wait for the server.
func TestRetriesWhileBlocked(t *testing.T) {
	t.Parallel()
	for _, stops := range []bool{false, true} {
		t.Run(fmt.Sprintf("stops %v", stops), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := fake(t, rabbitmqtest.Config{})
				p := &answers{say: func(_ context.Context, m *consumer.Message) error {
					if m.Attempt < 3 { // the first failure waits in memory, until the retry queue is found
						return &consumer.RetryError{Err: errors.New("not yet"), After: time.Second}
					}
					return nil
				}}
				b := subscribe(t, s, rabbitmq.SubscriberConfig{
					Processor: p, Grace: 2 * time.Second, Concurrency: 1,
					MaxBatch: 1,
				})
				const messages = 10
				for i := range messages {
					send(t, s.Dial, workQueue, amqp.Publishing{MessageId: fmt.Sprint(i)})
					lapse(95 * time.Millisecond) // the first one fails for the second time after 1 s
				}
				copies := 0
				s.OnPublish(func(rabbitmqtest.Publish) rabbitmqtest.Fate { copies++; return rabbitmqtest.Take })
				s.Block("low on memory")
				lapse(10 * time.Second)
				if !stops {
					s.Unblock()
					lapse(10 * time.Second)
					if state, _ := s.Queue(workQueue); state.Ready+state.Unacked > 0 || copies != messages {
						t.Errorf("the queue holds %+v after %d copies; want none after %d", state, copies, messages)
					}
					return
				}
				began := time.Now()
				if err := b.stop(); err != nil {
					t.Error(err)
				}
				if took := time.Since(began); took > 0 {
					t.Errorf("Run took %v to return", took)
				}
				s.Unblock()
				if state, _ := s.Queue(workQueue); state.Ready != messages || copies > 1 {
					t.Errorf("the queue holds %+v, and %d copies were sent; want all %d, and no copy but the first",
						state, copies, messages)
				}
			})
		})
	}
}

// TestCopyFaults: whatever happens to the copy of a deferred message, the message is not lost.
func TestCopyFaults(t *testing.T) {
	t.Parallel()
	for name, fate := range map[string]rabbitmqtest.Fate{
		"refused": rabbitmqtest.Nack, "confirm lost": rabbitmqtest.Withhold, "cut before": rabbitmqtest.CutBefore,
		"cut after": rabbitmqtest.CutAfter, "not permitted": rabbitmqtest.Refuse,
		"refused and taken": rabbitmqtest.NackButTake,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := fake(t, rabbitmqtest.Config{})
				p := &answers{}
				p.say = func(context.Context, *consumer.Message) error {
					if len(p.all()) < 3 { // the first failure waits in memory, until the retry queue is found
						return &consumer.RetryError{Err: errors.New("not yet"), After: time.Second}
					}
					return nil
				}
				var copies atomic.Int32
				s.OnPublish(func(sent rabbitmqtest.Publish) rabbitmqtest.Fate {
					if strings.Contains(sent.Key, ".retry.") && copies.Add(1) == 1 {
						return fate
					}
					return rabbitmqtest.Take
				})
				send(t, s.Dial, workQueue, amqp.Publishing{MessageId: "m"})
				b := subscribe(t, s, rabbitmq.SubscriberConfig{Processor: p})
				lapse(3 * time.Minute)
				if n := len(p.all()); n < 3 || n > 4 {
					t.Errorf("%d deliveries, want 3, or 4 where there are two copies", n)
				}
				if copies.Load() == 0 {
					t.Error("no copy was sent; the test has shown nothing")
				}
				if err := b.stop(); err != nil {
					t.Error(err)
				}
				nothingLeft(t, s)
			})
		})
	}
}

// TestAckLostAfterTheCopy: the original comes again beside its copy: two deliveries of one message.
func TestAckLostAfterTheCopy(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := fake(t, rabbitmqtest.Config{})
		p := &answers{}
		p.say = func(context.Context, *consumer.Message) error {
			if len(p.all()) < 3 {
				return &consumer.RetryError{Err: errors.New("not yet"), After: time.Second}
			}
			return nil
		}
		var cut sync.Once
		send(t, s.Dial, workQueue, amqp.Publishing{Body: []byte("x")}) // without message-id
		b := subscribe(t, s, rabbitmq.SubscriberConfig{Processor: p, Dial: func(ctx context.Context) (rabbitmq.Connection, error) {
			c, err := s.Dial(ctx)
			return deaf{c, func() { cut.Do(s.Cut) }}, err
		}})
		lapse(time.Minute)
		got := p.all()
		if len(got) != 4 {
			t.Fatalf("%d deliveries, want 4: two that failed, the copy, and the original again", len(got))
		}
		if err := b.stop(); err != nil {
			t.Error(err)
		}
		nothingLeft(t, s)
	})
}

// deaf is a connection that is cut instead of acknowledging for the first time.
type deaf struct {
	rabbitmq.Connection
	cut func()
}

func (d deaf) Channel() (rabbitmq.Channel, error) {
	ch, err := d.Connection.Channel()
	ch.ChannelConsumer = deafConsumer{ch.ChannelConsumer, d.cut}
	return ch, err
}

type deafConsumer struct {
	rabbitmq.ChannelConsumer
	cut func()
}

func (d deafConsumer) Ack(tag uint64, multiple bool) error {
	d.cut()
	return d.ChannelConsumer.Ack(tag, multiple)
}
