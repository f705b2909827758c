package kafka_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/txonce/txonce/adapters/kafka"
	"github.com/txonce/txonce/internal/test/arrivals"
	"github.com/txonce/txonce/internal/test/brokers/testkafka"
	"github.com/txonce/txonce/outbox"
)

// Messages of ended calls are not sent when the brokers are back, and take no memory until then, although sarama goes
// on trying.
func TestPublisherKeepsNoBacklog(t *testing.T) {
	eachCluster(t, func(t *testing.T, c cluster) {
		topic := testkafka.Topic(t, c.brokers, 3)
		cfg := publisherConfig()
		cfg.Producer.Retry.Max = 1 << 20
		g := through(cfg)
		p, err := kafka.NewPublisher(kafka.PublisherConfig{Client: dial(t, c.brokers, cfg)})
		if err != nil {
			t.Fatal(err)
		}
		defer p.Close()
		mustPublish(t, p, outbox.Message{Topic: topic, Payload: []byte("before")})
		idle := g.connections()

		speak := g.hush() // first they are silent, then away
		var calls sync.WaitGroup
		for i := range 20 {
			if i == 10 {
				defer g.close()()
			}
			calls.Go(func() {
				for j, err := range publish(t, p, 500*time.Millisecond,
					outbox.Message{Topic: topic, OrderingKey: fmt.Sprint(i), Payload: []byte("abandoned")}) {
					if !unavailable(err) {
						t.Errorf("call %d, message %d: %v; want the broker to be blamed", i, j, err)
					}
				}
			})
			elapse(50 * time.Millisecond)
		}
		calls.Wait()
		eventually(t, func() error {
			if n := g.connections(); n > idle {
				return fmt.Errorf("%d connections, before the outage %d", n, idle)
			}
			return nil
		})
		speak()
		g.close()()
		eventually(t, func() error {
			return publish(t, p, patience, outbox.Message{Topic: topic, Payload: []byte("after")})[0]
		})
		elapse(time.Second) // whatever would still be sent
		times := map[string]int{}
		for _, m := range arrived(t, c.brokers, topic) {
			times[string(m.Value)]++
		}
		// Messages that were written to a connection before it went silent did arrive; later ones did not.
		if times["before"] != 1 || times["after"] != 1 || times["abandoned"] > 10 {
			t.Errorf("arrived: %v; want before and after once, abandoned at most 10 times", times)
		}
	})
}

// This is a small relay: each key's next message is published when the one before is confirmed. Whatever happens to the
// connections, confirmed messages are there, and first occurrences are in order.
func TestPublisherKeepsOrderThroughFaults(t *testing.T) {
	eachCluster(t, func(t *testing.T, c cluster) {
		const keys, each, most = 8, 100, 60 // messages of each key, and more as long as too few faults have met them
		topic := testkafka.Topic(t, c.brokers, 3)
		cfg := publisherConfig()
		cfg.Producer.Retry.Max = 1 // so that retries are exhausted, and epochs bumped
		g := through(cfg)
		p, err := kafka.NewPublisher(kafka.PublisherConfig{Client: dial(t, c.brokers, cfg)})
		if err != nil {
			t.Fatal(err)
		}
		defer p.Close()
		ctx, cancel := context.WithTimeout(t.Context(), 3*patience) // of all
		defer cancel()
		done := make(chan struct{})
		var faults atomic.Int64
		var faultsDone sync.WaitGroup
		faultsDone.Go(func() {
			for faults.Load() < most {
				select {
				case <-done:
					return
				case <-time.After(time.Duration(rand.IntN(60)) * time.Millisecond):
				}
				faults.Add(1)
				switch rand.IntN(3) {
				case 0:
					g.lose(1 + rand.IntN(4))
				case 1:
					open := g.close()
					elapse(time.Duration(rand.IntN(30)) * time.Millisecond)
					open()
				case 2:
					speak := g.hush()
					elapse(time.Duration(rand.IntN(400)) * time.Millisecond)
					speak()
				}
			}
		})
		shown := func() bool { return faults.Load() >= 10 && g.lost() > 0 }
		var relays sync.WaitGroup
		var sent [keys]int
		for k := range keys {
			relays.Go(func() {
				for n := 0; n < each || !shown() && faults.Load() < most; n++ {
					sent[k] = n + 1
					for try := 1; ; try++ { // longer each time: the machine may be too slow for the first
						call, cancel := context.WithTimeout(ctx,
							time.Duration(try*(20+rand.IntN(300)))*time.Millisecond)
						errs := p.Publish(call, []outbox.Message{{Topic: topic, OrderingKey: fmt.Sprint(k), Payload: fmt.Append(nil, n)}})
						cancel()
						if errs == nil || errs[0] == nil {
							break
						}
						if outbox.IsPermanent(errs[0]) || ctx.Err() != nil {
							t.Errorf("key %d, message %d: %v", k, n, errs[0])
							return
						}
						elapse(5 * time.Millisecond)
					}
				}
			})
		}
		relays.Wait()
		close(done)
		faultsDone.Wait()
		elapse(200 * time.Millisecond)

		var order arrivals.Order
		for _, m := range arrived(t, c.brokers, topic) {
			order.Add(t, string(m.Key), m.Value)
		}
		for k := range keys {
			if n := order.Next[fmt.Sprint(k)]; n != sent[k] {
				t.Errorf("key %d: %d of %d confirmed messages are there", k, n, sent[k])
			}
		}
		t.Logf("%d faults, %d answers lost, %d repeats", faults.Load(), g.lost(), order.Repeats)
		if !shown() {
			t.Error("too few faults to show anything")
		}
	})
}
