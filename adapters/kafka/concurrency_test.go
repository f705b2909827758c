package kafka_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/IBM/sarama"

	"github.com/txonce/txonce/adapters/kafka"
	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/consumer/consumertest"
	"github.com/txonce/txonce/consumer/driver"
	"github.com/txonce/txonce/dedup/deduptest"
)

// crowd is a Processor that checks that no key is in work twice, and that each key's messages come in order.
type crowd struct {
	mu      sync.Mutex
	working map[string]bool
	last    map[string]string
	most    int
	wrong   []string
	hold    func(ctx context.Context, msg *consumer.Message) error
}

func newCrowd(hold func(ctx context.Context, msg *consumer.Message) error) *crowd {
	return &crowd{working: map[string]bool{}, last: map[string]string{}, hold: hold}
}

func (c *crowd) Process(ctx context.Context, msg *consumer.Message) error {
	c.enter(msg)
	err := c.hold(ctx, msg)
	c.leave(msg, err)
	return err
}

func (c *crowd) enter(msg *consumer.Message) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.working[msg.OrderingKey] && msg.OrderingKey != "" {
		c.wrong = append(c.wrong, fmt.Sprintf("%s is handled beside another message of key %s", msg.Payload,
			msg.OrderingKey))
	}
	c.working[msg.OrderingKey] = true
	c.most = max(c.most, len(c.working))
}

func (c *crowd) leave(msg *consumer.Message, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.working, msg.OrderingKey)
	if err != nil || msg.OrderingKey == "" {
		return
	}
	if text := string(msg.Payload); text <= c.last[msg.OrderingKey] {
		c.wrong = append(c.wrong, fmt.Sprintf("%s comes after %s", text, c.last[msg.OrderingKey]))
	}
	c.last[msg.OrderingKey] = string(msg.Payload)
}

func (c *crowd) check(t *testing.T) {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, w := range c.wrong {
		t.Error(w)
	}
}

// crowdOfBatches is a crowd that is given batches. Within one, messages of a key follow each other.
type crowdOfBatches struct{ *crowd }

func (c crowdOfBatches) ProcessBatch(ctx context.Context, msgs []*consumer.Message) (errs []error) {
	for _, m := range msgs {
		errs = append(errs, c.Process(ctx, m))
	}
	return errs
}

// mixed returns n messages of each of so many keys, in turn: k3-0007 is the eighth of key k3.
func mixed(keys, n int) (msgs []*sarama.ProducerMessage) {
	for i := range n {
		for k := range keys {
			msgs = append(msgs, keyed(0, fmt.Sprintf("k%d", k), fmt.Sprintf("k%d-%04d", k, i))...)
		}
	}
	return msgs
}

// Eight keys are handled side by side: no handler returns before eight run.
func TestConcurrency(t *testing.T) {
	eachCluster(t, func(t *testing.T, c cluster) {
		for _, way := range []string{"one by one", "in batches"} {
			t.Run(way, func(t *testing.T) {
				t.Parallel()
				g := c.group(t, 1)
				g.produce(t, mixed(8, 20)...)
				var crowded sync.WaitGroup
				crowded.Add(8)
				first := map[string]*sync.Once{}
				for k := range 8 {
					first[fmt.Sprintf("k%d", k)] = &sync.Once{}
				}
				crowd := newCrowd(func(_ context.Context, msg *consumer.Message) error {
					first[msg.OrderingKey].Do(crowded.Done)
					crowded.Wait()
					if rand.N(10) == 0 {
						return &consumer.RetryError{Err: errors.New("again"), Held: true}
					}
					return nil
				})
				cfg := kafka.SubscriberConfig{Processor: crowd, Concurrency: 8}
				if way == "in batches" {
					// As a batch is shared out by number, a batch of one key each is what lets all eight begin.
					cfg.Processor, cfg.MaxBatch = crowdOfBatches{crowd}, 1
				}
				m := g.join(t, cfg)
				g.awaitConsumed(t)
				if err := m.stop(); err != nil {
					t.Error(err)
				}
				crowd.check(t)
				if crowd.most != 8 {
					t.Errorf("%d keys were in work at a time, want 8", crowd.most)
				}
			})
		}
	})
}

// sharing is a BatchProcessor that records the sizes of its batches, and holds each until the test releases it.
type sharing struct {
	began chan int
	goOn  chan struct{}
}

func (s sharing) Process(ctx context.Context, msg *consumer.Message) error {
	return s.ProcessBatch(ctx, []*consumer.Message{msg})[0]
}

func (s sharing) ProcessBatch(ctx context.Context, msgs []*consumer.Message) []error {
	s.began <- len(msgs)
	select {
	case <-s.goOn:
	case <-ctx.Done():
	}
	return make([]error, len(msgs))
}

// Waiting messages are shared among the batches, also when the batches end one after the other: no batch takes all, and
// each gets some.
func TestConcurrencySharesWhatWaits(t *testing.T) {
	g := startKfake(t).group(t, 1)
	g.produce(t, text(0, numbers(4)...)...)
	p := sharing{make(chan int, 100), make(chan struct{})}
	m := g.join(t, kafka.SubscriberConfig{Processor: p, Concurrency: 4})
	release := sync.OnceFunc(func() { close(p.goOn) })
	t.Cleanup(release)
	begun := func(most int) {
		t.Helper()
		select {
		case n := <-p.began:
			if n > most {
				t.Fatalf("a batch of %d messages leaves too few to the other three; want %d at the most", n, most)
			}
		case <-time.After(patience):
			t.Fatal("no batch begins, although messages wait and fewer than four batches are in work")
		}
	}
	for range 4 {
		begun(1)
	}
	g.produce(t, text(0, numbers(40)...)...)
	elapse(300 * time.Millisecond) // they have been taken in
	for range 4 {
		p.goOn <- struct{}{}
		begun(11) // a quarter of the 40 and of those in work
	}
	release()
	g.awaitConsumed(t)
	if err := m.stop(); err != nil {
		t.Error(err)
	}
}

// While the first message is in work, the offset does not move, even if later messages are finished. When the member
// dies then, the next one gets all messages.
func TestConcurrencyMarksNoUnfinishedMessage(t *testing.T) {
	eachCluster(t, func(t *testing.T, c cluster) {
		g := c.group(t, 1)
		g.produce(t, keyed(0, "slow", "slow-0000")...)
		g.produce(t, mixed(5, 30)...)
		store := consumertest.NewStore()
		var mu sync.Mutex
		done, all := map[string]bool{}, make(chan struct{})
		marks := &assignments{}
		p := inTurns(t, store, func(ctx context.Context, m *consumer.Message) error {
			if m.OrderingKey == "slow" {
				<-ctx.Done() // until the member is told to stop, and its grace is over
				return ctx.Err()
			}
			mu.Lock()
			defer mu.Unlock()
			if s := string(m.Payload); !done[s] {
				done[s] = true
				if len(done) == 150 {
					close(all)
				}
			}
			return nil
		})
		m := g.join(t, kafka.SubscriberConfig{
			Processor: p, Concurrency: 4, Grace: time.Millisecond,
			Trace: marks.trace(), AcceptedRisks: []kafka.Risk{kafka.RiskShortWindow},
		})
		<-all
		elapse(300 * time.Millisecond) // what is finished has been settled
		if err := m.stop(); err != nil {
			t.Error(err)
		}
		if at, err := g.committed(0); err != nil || at > 0 || len(marks.marked) > 0 {
			t.Errorf("committed %d, %v, marked %v: message 0 is unfinished", at, err, marks.marked)
		}
		next := g.join(t, kafka.SubscriberConfig{
			Processor: inTurns(t, consumertest.NewStoreOn(store.Database()), nil), Concurrency: 4,
			AcceptedRisks: []kafka.Risk{kafka.RiskShortWindow},
		})
		g.awaitConsumed(t)
		if err := next.stop(); err != nil {
			t.Error(err)
		}
		for k := range 5 {
			for i := range 30 {
				if id := fmt.Sprintf("k%d-%04d", k, i); store.Database().Count(id) != 1 {
					t.Errorf("%d effects of %s, want 1", store.Database().Count(id), id)
				}
			}
		}
		if n := store.Database().Count("slow-0000"); n != 1 {
			t.Errorf("%d effects of the first message, want 1", n)
		}
	})
}

// inTurns is a consumer whose transactions hold one message each.
func inTurns(t *testing.T, store *consumertest.Store,
	before func(ctx context.Context, m *consumer.Message) error,
) consumer.Processor {
	t.Helper()
	c, err := consumer.New(consumer.Config[*deduptest.Tx]{
		Name: "billing", Store: store,
		Key: func(m *consumer.Message) (string, error) { return string(m.Payload), nil },
		Handle: func(ctx context.Context, tx *deduptest.Tx, m *consumer.Message) error {
			if before != nil {
				if err := before(ctx, m); err != nil {
					return err
				}
			}
			return tx.Add(string(m.Payload))
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	return struct {
		consumer.Processor
		driver.Starter
	}{c, c}
}

// Members come and go while handlers of several keys run: each message has one effect, and keys stay in order.
func TestConcurrencyUnderRebalances(t *testing.T) {
	eachProtocol(t, func(t *testing.T, strategy sarama.BalanceStrategy) {
		g := startKfake(t).group(t, 3)
		const n = 600
		var msgs []*sarama.ProducerMessage
		for i := range n {
			msgs = append(msgs, keyed(int32(i%3), fmt.Sprintf("p%dk%d", i%3, i/3%7), fmt.Sprintf("%04d", i))...)
		}
		g.produce(t, msgs...)
		db := deduptest.NewDatabase()
		join := func() *member {
			p := inTurns(t, consumertest.NewStoreOn(db), func(ctx context.Context, _ *consumer.Message) error {
				select {
				case <-time.After(rand.N(4 * time.Millisecond)):
					return nil
				case <-ctx.Done():
					return ctx.Err()
				}
			})
			return g.join(t, kafka.SubscriberConfig{
				Client: dial(t, g.brokers, testConfig(strategy)), Processor: p, Concurrency: 8, MaxUnfinished: 50,
				MaxBatch: 50, Grace: 20 * time.Millisecond,
				AcceptedRisks: []kafka.Risk{kafka.RiskShortWindow},
			})
		}
		stays := join()
		for range 4 {
			other := join()
			elapse(150 * time.Millisecond)
			if err := other.stop(); err != nil {
				t.Error(err)
			}
		}
		g.awaitConsumed(t)
		if err := stays.stop(); err != nil {
			t.Error(err)
		}
		for i := range n {
			if id := fmt.Sprintf("%04d", i); db.Count(id) != 1 {
				t.Errorf("%d effects of %s, want 1", db.Count(id), id)
			}
		}
	})
}

// With handlers that take 5 ms, as a remote call does, a partition's throughput grows with Concurrency. The test counts
// the handlers that run at a time and measures no time, because a busy machine may pause the process.
func TestConcurrencyGain(t *testing.T) {
	const n, keys = 400, 100
	for _, concurrency := range []int{1, 8, 32} {
		g := startKfake(t).group(t, 1)
		g.produce(t, mixed(keys, n/keys)...)
		var first sync.Once
		var began time.Time
		var working, sum atomic.Int64
		crowd := newCrowd(func(context.Context, *consumer.Message) error {
			first.Do(func() { began = time.Now() })
			sum.Add(working.Add(1))
			defer working.Add(-1)
			elapse(5 * time.Millisecond)
			return nil
		})
		m := g.join(t, kafka.SubscriberConfig{Processor: crowd, Concurrency: concurrency})
		g.awaitConsumed(t)
		took := time.Since(began)
		if err := m.stop(); err != nil {
			t.Error(err)
		}
		crowd.check(t)
		together := float64(sum.Load()) / n
		t.Logf("%d side by side: %.0f messages/s, %.1f at a time", concurrency, n/took.Seconds(), together)
		if concurrency == 8 && together < 3 {
			t.Errorf("with 8 side by side %.1f messages are in work when one begins", together)
		}
	}
}
