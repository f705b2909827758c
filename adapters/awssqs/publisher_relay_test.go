package awssqs_test

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/txonce/txonce/adapters/awssqs"
	"github.com/txonce/txonce/adapters/awssqs/awssqstest"
	"github.com/txonce/txonce/internal/test/arrivals"
	"github.com/txonce/txonce/internal/test/brokers/testsqs"
	"github.com/txonce/txonce/observe"
	"github.com/txonce/txonce/outbox"
	"github.com/txonce/txonce/outbox/outboxtest"
	"github.com/txonce/txonce/outbox/relay"
)

// TestPublisherBehindRelay relays from an outbox to a FIFO queue while entries are refused, answers lost, and the
// server goes away. Everything arrives, first occurrences in the order of their key, and on a queue that deduplicates
// nothing twice.
func TestPublisherBehindRelay(t *testing.T) {
	t.Parallel()
	t.Run("fake", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := awssqstest.NewServer(awssqstest.Config{})
			f := &faults{}
			s.SetFault(f.decide)
			relayTo(t, s, func() {
				s.Down()
				<-time.After(3 * time.Second)
				s.Up()
			}, func() { s.SetFault(nil) })
			t.Logf("of %d requests %d failed before, %d after they took effect; %d entries were refused, %d lost",
				f.calls, f.before, f.after, f.refused, f.lost)
			if f.before == 0 || f.after == 0 || f.refused == 0 || f.lost == 0 {
				t.Error("some faults never happened; the test has shown nothing")
			}
		})
	})
	if testing.Short() {
		return
	}
	t.Run("elasticmq", func(t *testing.T) {
		client, g := through(t, testsqs.Server(t))
		relayTo(t, client, func() {
			for range 3 {
				open := g.close()
				<-time.After(500 * time.Millisecond)
				open()
				<-time.After(200 * time.Millisecond)
			}
		}, func() {})
	})
}

// faults makes some of the sent messages fail.
type faults struct {
	mu                                  sync.Mutex
	calls, before, after, refused, lost int
}

func (f *faults) decide(c awssqstest.Call) awssqstest.Fault {
	if c.Operation != "SendMessageBatch" {
		return awssqstest.Fault{}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls++
	fault := awssqstest.Fault{
		Delay:   time.Duration(rand.IntN(20)) * time.Millisecond,
		Entries: map[int]awssqstest.EntryFault{},
	}
	switch rand.IntN(10) {
	case 0:
		fault.Before = awssqstest.ErrConnection
		f.before++
	case 1:
		fault.After = awssqstest.ErrConnection
		f.after++
	}
	for i := range c.Entries {
		switch rand.IntN(10) {
		case 0:
			fault.Entries[i] = awssqstest.EntryFault{Code: "InternalError"}
			f.refused++
		case 1:
			fault.Entries[i] = awssqstest.EntryFault{Code: "InternalError", Done: true}
			f.lost++
		}
	}
	return fault
}

// relayTo relays a stream of messages to a FIFO queue during an outage, and checks which messages have arrived.
func relayTo(t *testing.T, api creator, outage, heal func()) {
	t.Helper()
	const keys, each = 20, 30
	queue, _ := makeQueue(t, api, true, nil)
	p, err := awssqs.NewPublisher(awssqs.PublisherConfig{Client: api})
	if err != nil {
		t.Fatal(err)
	}
	memory := outboxtest.NewMemory()
	r, err := relay.New(relay.Config{
		Queue: memory, Publisher: p, PublishTimeout: 2 * time.Second, MaxAttempts: 3,
		Logger: slog.New(slog.DiscardHandler), Backoff: func(int) time.Duration { return 20 * time.Millisecond },
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
	var running sync.WaitGroup
	running.Go(func() {
		if err := r.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	defer running.Wait()
	defer stop()
	over := make(chan struct{})
	running.Go(func() {
		defer close(over)
		<-time.After(200 * time.Millisecond)
		outage()
	})
	for n := range each {
		err := memory.InTx(ctx, func(tx *outboxtest.Tx) error {
			for k := range keys {
				err := memory.Enqueue(ctx, tx, outbox.Message{
					ID: fmt.Sprintf("%d-%d", k, n), Topic: queue,
					OrderingKey: fmt.Sprint("key ", k), Payload: fmt.Append(nil, n),
				})
				if err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		<-time.After(30 * time.Millisecond)
	}
	for began := time.Now(); ; <-time.After(50 * time.Millisecond) {
		err := arrivals.Drained(ctx, memory)
		if err == nil {
			break
		}
		if time.Since(began) > 3*time.Minute {
			t.Fatal(err)
		}
	}
	<-over // a receive whose answer is lost would hold what it took for 30 s
	heal()
	var order arrivals.Order
	for _, m := range readQueue(t, api, queue, keys*each) {
		order.Add(t, m.OrderingKey, m.Payload)
	}
	if order.Repeats > 0 {
		t.Errorf("%d messages arrived twice in a FIFO queue", order.Repeats)
	}
	for k := range keys {
		if n := order.Next[fmt.Sprint("key ", k)]; n != each {
			t.Errorf("key %d: %d of %d messages arrived", k, n, each)
		}
	}
}
