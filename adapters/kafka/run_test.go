package kafka_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/google/go-cmp/cmp"

	"github.com/txonce/txonce/adapters/kafka"
	"github.com/txonce/txonce/consumer"
)

// ledger is a Processor that records its messages, and returns the result of answer.
type ledger struct {
	mu     sync.Mutex
	seen   []string
	answer func(ctx context.Context, msg *consumer.Message) error
}

func (l *ledger) Process(ctx context.Context, msg *consumer.Message) error {
	l.mu.Lock()
	l.seen = append(l.seen, string(msg.Payload))
	l.mu.Unlock()
	if l.answer != nil {
		return l.answer(ctx, msg)
	}
	return nil
}

func (l *ledger) list() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.seen)
}

// inBatches is a ledger that takes batches.
type inBatches struct {
	*ledger
	sizes chan int
}

func (b inBatches) ProcessBatch(ctx context.Context, msgs []*consumer.Message) (errs []error) {
	if b.sizes != nil {
		b.sizes <- len(msgs)
	}
	for _, m := range msgs {
		errs = append(errs, b.Process(ctx, m))
	}
	return errs
}

func TestAllInOrder(t *testing.T) {
	eachCluster(t, func(t *testing.T, c cluster) {
		for _, way := range []string{"one by one", "in batches"} {
			t.Run(way, func(t *testing.T) {
				t.Parallel()
				g := c.group(t, 2) // partition 1 is empty: it is to have a committed offset as well
				g.produce(t, text(0, numbers(3000)...)...)
				l := &ledger{}
				cfg := kafka.SubscriberConfig{Processor: l}
				if way == "in batches" {
					cfg.Processor = inBatches{ledger: l}
				}
				m := g.join(t, cfg)
				g.awaitConsumed(t)
				if err := m.stop(); err != nil {
					t.Errorf("Run = %v; want nil when it was told to stop", err)
				}
				if diff := cmp.Diff(numbers(3000), l.list()); diff != "" {
					t.Errorf("handled (-want +got):\n%s", diff)
				}
			})
		}
	})
}

func TestBatchesAreWhatWaits(t *testing.T) {
	eachCluster(t, func(t *testing.T, c cluster) {
		g := c.group(t, 1)
		release := make(chan struct{})
		first := sync.OnceFunc(func() { <-release })
		b := inBatches{
			&ledger{answer: func(context.Context, *consumer.Message) error { first(); return nil }},
			make(chan int, 100),
		}
		cfg := testConfig(sarama.NewBalanceStrategyRange())
		taken := takeIn(t, cfg, 26)
		g.join(t, kafka.SubscriberConfig{
			Client: dial(t, c.brokers, cfg), Processor: b, MaxBatch: 10,
			MaxUnfinished: 100,
		})
		g.produce(t, text(0, "0")...)
		if n := <-b.sizes; n != 1 {
			t.Fatalf("first batch of %d; want the one message there is, not kept waiting for more", n)
		}
		g.produce(t, text(0, append(numbers(25), "a stopper")...)...)
		goOn := taken.await() // while the first is still being handled
		close(release)
		var sizes []int
		for sum := 0; sum < 25; {
			n := <-b.sizes
			sizes, sum = append(sizes, n), sum+n
		}
		if diff := cmp.Diff([]int{10, 10, 5}, sizes); diff != "" {
			t.Errorf("25 waiting messages were handled in batches of (-want +got):\n%s", diff)
		}
		goOn()
		g.awaitConsumed(t)
	})
}

// takeIn makes sarama hold back the message at offset stopper of partition 0, and reports when the Subscriber has
// received all messages before it: without a buffer, sarama reaches a message when the one before has been received.
func takeIn(t *testing.T, cfg *sarama.Config, stopper int64) *intake {
	i := &intake{t: t, stopper: stopper, there: make(chan struct{}), goOn: make(chan struct{})}
	i.came, i.end = sync.OnceFunc(func() { close(i.there) }), sync.OnceFunc(func() { close(i.goOn) })
	t.Cleanup(i.end)
	cfg.ChannelBufferSize, cfg.Consumer.MaxProcessingTime = 0, time.Hour
	cfg.Consumer.Interceptors = []sarama.ConsumerInterceptor{i}
	return i
}

type intake struct {
	t           *testing.T
	stopper     int64
	there, goOn chan struct{}
	came, end   func()
}

func (i *intake) OnConsume(m *sarama.ConsumerMessage) {
	if m.Offset == i.stopper {
		i.came()
		<-i.goOn
	}
}

// await returns a function that releases the stopper.
func (i *intake) await() func() {
	i.t.Helper()
	select {
	case <-i.there:
	case <-time.After(patience):
		i.t.Fatal("the messages were not taken in")
	}
	elapse(100 * time.Millisecond) // the last has been received, and is added to the others next
	return i.end
}

func TestBatchesAreBoundedInBytes(t *testing.T) {
	t.Parallel()
	g := startKfake(t).group(t, 1)
	release := make(chan struct{})
	first := sync.OnceFunc(func() { <-release })
	b := inBatches{
		&ledger{answer: func(context.Context, *consumer.Message) error { first(); return nil }},
		make(chan int, 100),
	}
	cfg := testConfig(sarama.NewBalanceStrategyRange())
	taken := takeIn(t, cfg, 7)
	g.join(t, kafka.SubscriberConfig{Client: dial(t, g.brokers, cfg), Processor: b, MaxBatchBytes: 100})
	g.produce(t, text(0, "0")...)
	<-b.sizes
	// At once: soon after the large one nothing more is fetched, and the stopper would never come.
	g.produceAtOnce(t, text(0, strings.Repeat("x", 40), strings.Repeat("x", 40), strings.Repeat("x", 40),
		strings.Repeat("x", 1000), "y", "z", "a stopper")...)
	defer taken.await()()
	close(release)
	var sizes []int
	for sum := 0; sum < 6; {
		n := <-b.sizes
		sizes, sum = append(sizes, n), sum+n
	}
	if diff := cmp.Diff([]int{2, 1, 1, 2}, sizes); diff != "" {
		t.Errorf("messages of 40, 40, 40, 1000, 1 and 1 bytes, 100 at a time, came in batches of (-want +got):\n%s", diff)
	}
}

// TestRetry makes one message fail for a while. Messages with its key wait, others go on, and the mark does not move.
func TestRetry(t *testing.T) {
	eachCluster(t, func(t *testing.T, c cluster) {
		g := c.group(t, 1)
		var (
			attempts []int
			ok       = make(chan struct{})
		)
		l := &ledger{}
		l.answer = func(_ context.Context, msg *consumer.Message) error {
			if string(msg.Payload) != "a1" {
				return nil
			}
			attempts = append(attempts, msg.Attempt)
			select {
			case <-ok:
				return nil
			default:
				return &consumer.RetryError{
					Err: errors.New("not yet"), After: 20 * time.Millisecond,
					Held: len(attempts)%2 == 0,
				}
			}
		}
		b := inBatches{ledger: l}
		m := g.join(t, kafka.SubscriberConfig{Processor: holdBack{b}})
		g.produce(t, keyed(0, "", "0", "a", "a1", "", "1", "a", "a2", "b", "b1", "a", "a3", "b", "b2", "", "2")...)
		want := []string{"0", "1", "2", "b1", "b2"}
		eventually(t, func() error {
			if got := without(l.list(), "a1"); len(got) < len(want) || len(attemptsOf(l, "a1")) < 9 {
				return fmt.Errorf("handled so far: %v", l.list())
			}
			return nil
		})
		eventually(t, func() error {
			if left, err := g.left(); err != nil || left != 7 {
				return fmt.Errorf("%d messages are uncommitted (%v); want 7: all from the unfinished one on", left, err)
			}
			return nil
		})
		elapse(500 * time.Millisecond) // two commits later
		if left, err := g.left(); err != nil || left != 7 {
			t.Errorf("%d messages are uncommitted (%v); want 7: the mark passed an unfinished message", left, err)
		}
		close(ok)
		g.awaitConsumed(t)
		if err := m.stop(); err != nil {
			t.Errorf("Run = %v", err)
		}
		order := l.list()
		slices.Reverse(order)
		if last, next := len(order)-slices.Index(order, "a1"), slices.Index(l.list(), "a2"); next < last-1 {
			t.Errorf("a2 was handled before a1 was finished: %v", l.list())
		}
		got := without(l.list(), "a1")
		for _, key := range []string{"a", "b"} {
			order := slices.DeleteFunc(slices.Clone(got), func(s string) bool { return s[:1] != key })
			if !slices.IsSorted(order) {
				t.Errorf("key %s was handled in the order %v", key, order)
			}
		}
		slices.Sort(got)
		if diff := cmp.Diff([]string{"0", "1", "2", "a2", "a3", "b1", "b2"}, got); diff != "" {
			t.Errorf("handled beside a1 (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff([]int{1, 2, 2, 3, 3, 4, 4, 5, 5}, attempts[:9]); diff != "" {
			t.Errorf("every other failure was uncounted; attempts (-want +got):\n%s", diff)
		}
	})
}

// holdBack answers as a consumer.Consumer does: messages behind a failed one of their key are held back.
type holdBack struct{ inBatches }

func (h holdBack) ProcessBatch(ctx context.Context, msgs []*consumer.Message) []error {
	errs := make([]error, len(msgs))
	failed := map[string]bool{}
	for i, m := range msgs {
		if m.OrderingKey != "" && failed[m.OrderingKey] {
			errs[i] = &consumer.RetryError{Err: errors.New("held"), Held: true}
		} else if errs[i] = h.Process(ctx, m); errs[i] != nil {
			failed[m.OrderingKey] = true
		}
	}
	return errs
}

func without(list []string, s string) []string {
	return slices.DeleteFunc(list, func(e string) bool { return e == s })
}

func attemptsOf(l *ledger, s string) []string {
	return slices.DeleteFunc(l.list(), func(e string) bool { return e != s })
}

// TestUnfinishedAreBounded makes every message fail: memory must not fill up, and no loop may spin.
func TestUnfinishedAreBounded(t *testing.T) {
	t.Parallel()
	g := startKfake(t).group(t, 1)
	for range 5 {
		g.produce(t, text(0, slices.Repeat([]string{strings.Repeat("x", 1000)}, 1000)...)...)
	}
	cfg := testConfig(sarama.NewBalanceStrategyRange())
	cfg.Consumer.Fetch.Default = 64 << 10
	away := make(chan struct{})
	seen := map[string]bool{}
	runs := 0
	var mu sync.Mutex
	l := inBatches{ledger: &ledger{answer: func(_ context.Context, msg *consumer.Message) error {
		mu.Lock()
		defer mu.Unlock()
		select {
		case <-away:
			return nil
		default:
			seen[msg.Position] = true
			runs++
			return &consumer.RetryError{Err: errors.New("database is away"), Held: true} // at once!
		}
	}}}
	var a assignments
	m := g.join(t, kafka.SubscriberConfig{
		Client: dial(t, g.brokers, cfg), Processor: l, MaxBatch: 50,
		MaxUnfinished: 100, Trace: a.trace(),
	})
	eventually(t, func() error {
		mu.Lock()
		defer mu.Unlock()
		if len(seen) < 100 {
			return fmt.Errorf("%d messages are held while none can be finished; want at least MaxUnfinished (100)",
				len(seen))
		}
		return nil
	})
	elapse(3 * time.Second)
	mu.Lock()
	distinct, total := len(seen), runs
	mu.Unlock()
	if distinct > 1000 { // what sarama had fetched when its fetches were paused is taken in
		t.Errorf("%d messages are held while none can be finished; want MaxUnfinished (100) and what was fetched already", distinct)
	}
	if most := 40 * distinct; total > most {
		t.Errorf("%d deliveries of %d messages in 3 s; it spins", total, distinct)
	}
	close(away)
	g.awaitConsumed(t)
	if err := m.stop(); err != nil {
		t.Errorf("Run = %v", err)
	}
	if g := a.generations(); len(g) != 1 {
		t.Errorf("the member went through generations %v: it lost its session while the database was away", g)
	}
}

// TestTransactions reads a topic with aborted transactions: their messages have no effect, and their offsets and those
// of Kafka's own markers are gaps.
func TestTransactions(t *testing.T) {
	eachCluster(t, func(t *testing.T, c cluster) {
		g := c.group(t, 1)
		g.transact(t, numbers(6)...)
		g.produce(t, text(0, "last")...)
		l := &ledger{}
		g.join(t, kafka.SubscriberConfig{Processor: l})
		g.awaitConsumed(t)
		if diff := cmp.Diff([]string{"0", "2", "4", "last"}, l.list()); diff != "" {
			t.Errorf("handled (-want +got):\n%s", diff)
		}
	})
}
