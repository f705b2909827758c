package kafka_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/txonce/txonce/adapters/kafka"
	"github.com/txonce/txonce/internal/test/arrivals"
	"github.com/txonce/txonce/internal/test/brokers/testkafka"
	"github.com/txonce/txonce/internal/test/testlog"
	"github.com/txonce/txonce/observe"
	"github.com/txonce/txonce/outbox"
	"github.com/txonce/txonce/outbox/outboxtest"
	"github.com/txonce/txonce/outbox/relay"
)

// TestPublisherOutageBehindRelay takes the brokers away from a relay that is at work, for long enough that a relay that
// spins would show it, and that a relay that counts attempts would park its messages. Nothing is lost, and the relay
// goes on by itself.
func TestPublisherOutageBehindRelay(t *testing.T) {
	t.Parallel()
	const outage = 6 * time.Second // a minute would only make the cooldowns longer
	t.Run("refused", func(t *testing.T) {
		eachCluster(t, func(t *testing.T, c cluster) {
			relayThrough(t, c.brokers, func(g *gate, noticed func()) {
				open := g.close()
				elapse(outage)
				noticed()
				open()
			})
		})
	})
	t.Run("silent", func(t *testing.T) {
		eachCluster(t, func(t *testing.T, c cluster) {
			relayThrough(t, c.brokers, func(g *gate, noticed func()) {
				speak := g.hush()
				elapse(outage)
				noticed()
				speak()
			})
		})
	})
	if testing.Short() {
		return
	}
	t.Run("killed", func(t *testing.T) {
		t.Parallel()
		if why := noJars(); why != "" {
			t.Log("does not apply: " + why)
			return
		}
		own := startOwnKafka(t)
		relayThrough(t, []string{own.address}, func(_ *gate, noticed func()) {
			own.kill()
			elapse(outage)
			noticed()
			if err := own.start(t.Context()); err != nil {
				t.Error(err)
			}
		})
	})
}

// relayThrough relays a steady stream of messages while fault goes on, and checks which messages have arrived. fault
// can wait until the relay has noticed.
func relayThrough(t *testing.T, brokers []string, fault func(g *gate, noticed func())) {
	const keys = 20
	topic := testkafka.Topic(t, brokers, 3)
	cfg := publisherConfig()
	g := through(cfg)
	p, err := kafka.NewPublisher(kafka.PublisherConfig{Client: dial(t, brokers, cfg)})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	queue := outboxtest.NewMemory()
	log := &testlog.Log{}
	var deferred, rests atomic.Int64
	r, err := relay.New(relay.Config{
		Queue: queue, Publisher: p, PublishTimeout: 3 * time.Second, MaxAttempts: 3, Logger: log.Logger(),
		Trace: &relay.Trace{
			Settled: func(_ context.Context, messages []relay.Settlement) {
				for _, s := range messages {
					switch {
					case s.Outcome == observe.Parked:
						t.Errorf("parked: %v", s.Err)
					case s.Outcome == observe.Retried, s.Outcome == observe.Held && s.After > 0:
						deferred.Add(1)
					}
				}
			},
			Paused: func(context.Context, observe.Pause) { rests.Add(1) },
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	stopped := make(chan error, 1)
	go func() { stopped <- r.Run(ctx) }()

	enqueued := 0
	enqueue := func() {
		err := queue.InTx(ctx, func(tx *outboxtest.Tx) error {
			n := enqueued
			enqueued++
			return queue.Enqueue(ctx, tx, outbox.Message{
				ID: fmt.Sprint("m", n), Topic: topic, OrderingKey: fmt.Sprint("k", n%keys),
				Payload: fmt.Append(nil, n/keys),
			})
		})
		if err != nil {
			t.Error(err)
		}
	}
	over := make(chan struct{})
	for range 200 {
		enqueue()
		elapse(time.Millisecond)
	}
	eventually(t, func() error { return arrivals.Drained(ctx, queue) })
	before := g.dialed()
	go func() {
		defer close(over)
		fault(g, func() {
			for since := time.Now(); rests.Load() == 0 && time.Since(since) < patience; {
				elapse(20 * time.Millisecond)
			}
		})
	}()
	began := time.Now()
	for outage := true; outage; {
		select {
		case <-over:
			outage = false
		default:
			enqueue()
			elapse(5 * time.Millisecond)
		}
	}
	took, dials := time.Since(began), g.dialed()-before
	for range 200 {
		enqueue()
		elapse(time.Millisecond)
	}
	eventually(t, func() error { return arrivals.Drained(ctx, queue) })
	resumed := time.Since(began) - took
	stop()
	if err := <-stopped; err != nil {
		t.Error(err)
	}

	var order arrivals.Order
	for _, m := range arrived(t, brokers, topic) {
		order.Add(t, string(m.Key), m.Value)
	}
	t.Logf("away for %v: %d dials, %d rests, %d messages deferred; back, %v later all %d had arrived, %d repeats",
		took.Round(time.Millisecond), dials, rests.Load(), deferred.Load(), resumed.Round(time.Millisecond),
		order.Messages, order.Repeats)
	if order.Messages != enqueued {
		t.Errorf("%d of %d messages arrived", order.Messages, enqueued)
	}
	if rests.Load() == 0 {
		t.Error("the relay has not noticed; the test has shown nothing")
	}
	if most := 20 * int(took/time.Second); dials > most {
		t.Errorf("%d tries to connect in %v, want at most %d", dials, took, most)
	}
	if t.Failed() {
		t.Log("the Relay's log:\n" + log.String())
	}
}
