package rabbitmq_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/txonce/txonce/adapters/rabbitmq"
	"github.com/txonce/txonce/adapters/rabbitmq/internal/rabbitmqtest"
	"github.com/txonce/txonce/internal/test/arrivals"
	"github.com/txonce/txonce/internal/test/brokers/testrabbitmq"
	"github.com/txonce/txonce/internal/test/testlog"
	"github.com/txonce/txonce/observe"
	"github.com/txonce/txonce/outbox"
	"github.com/txonce/txonce/outbox/outboxtest"
	"github.com/txonce/txonce/outbox/relay"
)

// TestPublisherBehindRelay: whatever a server does to messages and connections, each message arrives, and those of one
// key in their order.
func TestPublisherBehindRelay(t *testing.T) {
	t.Run("fates", func(t *testing.T) {
		for seed := range uint64(20) {
			synctest.Test(t, func(t *testing.T) {
				at, s := fakeSite(rabbitmqtest.Config{})
				r := rand.New(rand.NewPCG(seed, 5))
				fates := []rabbitmqtest.Fate{
					rabbitmqtest.Nack, rabbitmqtest.NackButTake, rabbitmqtest.Withhold, rabbitmqtest.CutBefore,
					rabbitmqtest.CutAfter, rabbitmqtest.Refuse,
				}
				var troubles atomic.Int64
				s.OnPublish(func(rabbitmqtest.Publish) rabbitmqtest.Fate {
					if r.IntN(30) > 0 {
						return rabbitmqtest.Take
					}
					troubles.Add(1)
					return fates[r.IntN(len(fates))]
				})
				relayThrough(t, at, nil, func(ctx context.Context) {
					for ctx.Err() == nil {
						lapse(700 * time.Millisecond)
						s.Cut()
						lapse(300 * time.Millisecond)
						s.Release()
					}
				}, 3*time.Second)
				if troubles.Load() < 10 {
					t.Errorf("%d troubles; the test has shown little", troubles.Load())
				}
			})
		}
	})
	t.Run("restarts", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			at, s := fakeSite(rabbitmqtest.Config{})
			relayThrough(t, at, nil, func(ctx context.Context) {
				for ctx.Err() == nil {
					lapse(time.Second)
					s.Stop()
					lapse(500 * time.Millisecond)
					s.Start()
					lapse(time.Second)
					resume := s.Pause()
					lapse(2 * time.Second)
					resume()
					s.Block("memory")
					lapse(time.Second)
					s.Unblock()
				}
			}, 15*time.Second)
		})
	})
	for kind, args := range kinds {
		t.Run("real, "+kind, func(t *testing.T) {
			t.Parallel()
			url := testrabbitmq.Server(t)
			p := newProxy(t, url)
			at := &site{
				dial: dialer(p.url), own: dialer(url), dials: p.dialed,
				queue: func(t *testing.T, _ amqp.Table) string { return testrabbitmq.Queue(t, url, args) },
			}
			relayThrough(t, at, args, func(ctx context.Context) {
				for ctx.Err() == nil {
					lapse(200 * time.Millisecond)
					p.cut()
					lapse(100 * time.Millisecond)
					open := p.close()
					lapse(150 * time.Millisecond)
					open()
					lapse(200 * time.Millisecond)
					speak := p.hush()
					lapse(1200 * time.Millisecond)
					speak()
				}
			}, 6*time.Second)
		})
	}
}

// TestPublisherServerKilled kills a real server again and again, and starts it.
func TestPublisherServerKilled(t *testing.T) {
	t.Parallel()
	own := testrabbitmq.Start(t)
	var dials atomic.Int64
	at := &site{
		dial: func(ctx context.Context) (rabbitmq.Connection, error) {
			dials.Add(1)
			return dialer(own.URL)(ctx)
		},
		own: dialer(own.URL), dials: func() int { return int(dials.Load()) },
		queue: func(t *testing.T, args amqp.Table) string { return testrabbitmq.Queue(t, own.URL, args) },
	}
	relayThrough(t, at, kinds["quorum"], func(context.Context) {
		lapse(500 * time.Millisecond)
		if err := own.Restart(t.Context()); err != nil {
			t.Error(err)
		}
	}, 0)
}

// relayThrough relays a steady stream of messages until fault has returned or the time is up, and checks which messages
// have arrived.
func relayThrough(t *testing.T, at *site, args amqp.Table, fault func(context.Context), lasts time.Duration) {
	t.Helper()
	const keys = 20
	topic := at.queue(t, args)
	p := newPublisher(t, rabbitmq.PublisherConfig{Dial: at.dial})
	queue := outboxtest.NewMemory()
	log := &testlog.Log{}
	r, err := relay.New(relay.Config{
		Queue: queue, Publisher: p, PublishTimeout: time.Second, MaxAttempts: 50, Logger: log.Logger(),
		Backoff: func(int) time.Duration { return 50 * time.Millisecond },
		Trace: &relay.Trace{Settled: func(_ context.Context, messages []relay.Settlement) {
			for _, s := range messages {
				if s.Outcome == observe.Parked {
					t.Errorf("parked: %v", s.Err)
				}
			}
		}},
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	stopped := make(chan error, 1)
	go func() { stopped <- r.Run(ctx) }()

	over := make(chan struct{})
	faulty, calm := context.WithCancel(ctx)
	defer calm()
	go func() {
		defer close(over)
		fault(faulty)
	}()
	if lasts > 0 {
		time.AfterFunc(lasts, calm)
	}
	enqueued := 0
	for running := true; running; {
		select {
		case <-over:
			running = false
		case <-time.After(5 * time.Millisecond):
		}
		if err := queue.InTx(ctx, func(tx *outboxtest.Tx) error {
			n := enqueued
			enqueued++
			return queue.Enqueue(ctx, tx, outbox.Message{ID: fmt.Sprint("m", n), Topic: topic, OrderingKey: fmt.Sprint("k", n%keys), Payload: fmt.Append(nil, n/keys)})
		}); err != nil {
			t.Fatal(err)
		}
	}
	for began := time.Now(); ; lapse(20 * time.Millisecond) {
		err := arrivals.Drained(ctx, queue)
		if err == nil {
			break
		}
		if time.Since(began) > 3*time.Minute {
			t.Fatalf("%v\n%s", err, log)
		}
	}
	stop()
	if err := <-stopped; err != nil {
		t.Error(err)
	}
	if err := p.Close(); err != nil {
		t.Error(err)
	}
	var order arrivals.Order
	for _, m := range at.read(t, topic, enqueued) {
		order.Add(t, m.OrderingKey, m.Payload)
	}
	t.Logf("%d messages, %d repeats, %d dials", order.Messages, order.Repeats, at.dials())
	if order.Messages != enqueued {
		t.Errorf("%d of %d messages arrived", order.Messages, enqueued)
	}
	if at.dials() < 2 {
		t.Error("no connection was lost; the test has shown nothing")
	}
	if t.Failed() {
		t.Log("the Relay's log:\n" + log.String())
	}
}
