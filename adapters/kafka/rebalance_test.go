package kafka_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/google/go-cmp/cmp"

	"github.com/txonce/txonce/adapters/kafka"
	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/consumer/consumertest"
	"github.com/txonce/txonce/consumer/driver"
	"github.com/txonce/txonce/dedup/deduptest"
)

// assignments collects the calls of a Trace.
type assignments struct {
	mu       sync.Mutex
	assigned []driver.SourceEvent
	revoked  []driver.SourceEvent
	marked   []string
}

func (a *assignments) trace() *driver.SourceTrace {
	return &driver.SourceTrace{
		Assigned: func(_ context.Context, e driver.SourceEvent) {
			a.mu.Lock()
			defer a.mu.Unlock()
			a.assigned = append(a.assigned, e)
		},
		Revoked: func(_ context.Context, e driver.SourceEvent) {
			a.mu.Lock()
			defer a.mu.Unlock()
			a.revoked = append(a.revoked, e)
		},
		Acked: func(_ context.Context, e driver.SourceEvent) {
			a.mu.Lock()
			defer a.mu.Unlock()
			a.marked = append(a.marked, fmt.Sprintf("%d/%d", e.Partition, e.Offset))
		},
	}
}

// held are the partitions assigned and not revoked.
func (a *assignments) held() (partitions []int32) {
	a.mu.Lock()
	defer a.mu.Unlock()
	count := map[int32]int{}
	for _, e := range a.assigned {
		count[e.Partition]++
	}
	for _, e := range a.revoked {
		count[e.Partition]--
	}
	for p, n := range count {
		if n > 0 {
			partitions = append(partitions, p)
		}
	}
	slices.Sort(partitions)
	return partitions
}

// generations returns the generations that assigned a partition.
func (a *assignments) generations() (g []int32) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, e := range a.assigned {
		g = append(g, e.Generation)
	}
	slices.Sort(g)
	return slices.Compact(g)
}

func (a *assignments) await(t *testing.T, n int) {
	t.Helper()
	eventually(t, func() error {
		if held := a.held(); len(held) != n {
			return fmt.Errorf("holds partitions %v, want %d", held, n)
		}
		return nil
	})
}

// TestRebalanceWaitsForTheHandler takes a partition away while its handler runs, which then finishes within the grace
// period: the new owner does not get the message again.
func TestRebalanceWaitsForTheHandler(t *testing.T) {
	eachCluster(t, func(t *testing.T, c cluster) {
		eachProtocol(t, func(t *testing.T, strategy sarama.BalanceStrategy) {
			g := c.group(t, 2)
			g.produce(t, text(0, "a")...)
			g.produce(t, text(1, "b")...)
			client := func() sarama.Client { return dial(t, c.brokers, testConfig(strategy)) }
			running, finish := make(chan struct{}, 2), make(chan struct{})
			l := &ledger{}
			l.answer = func(ctx context.Context, msg *consumer.Message) error {
				tell(running)
				select {
				case <-finish:
					return nil
				case <-ctx.Done():
					return ctx.Err()
				}
			}
			g.join(t, kafka.SubscriberConfig{Client: client(), Processor: l})
			<-running
			<-running // both partitions
			var second assignments
			next := &ledger{}
			g.join(t, kafka.SubscriberConfig{Client: client(), Processor: next, Trace: second.trace()})
			elapse(time.Second) // by now the first member knows that a rebalance waits for it
			close(finish)
			second.await(t, 1)
			g.awaitConsumed(t)
			if n := len(l.list()) + len(next.list()); n != 2 {
				t.Errorf("2 messages were delivered %d times: the rebalance did not wait for the handlers", n)
			}
		})
	})
}

// TestRebalanceDoesNotWaitForever has handlers that end only when their context does. So many messages are behind them
// that the closing of Messages is visible only when the rest has been received.
func TestRebalanceDoesNotWaitForever(t *testing.T) {
	eachCluster(t, func(t *testing.T, c cluster) {
		eachProtocol(t, func(t *testing.T, strategy sarama.BalanceStrategy) {
			g := c.group(t, 2)
			for p := range int32(2) {
				g.produce(t, text(p, numbers(3000)...)...)
			}
			client := func() sarama.Client {
				cfg := testConfig(strategy)
				cfg.Consumer.Group.Rebalance.Timeout = time.Hour // the group itself would wait longer than the test
				return dial(t, c.brokers, cfg)
			}
			running := make(chan struct{}, 10)
			stuck := processor(func(ctx context.Context, _ *consumer.Message) error {
				tell(running)
				<-ctx.Done()
				return ctx.Err()
			})
			first := g.join(t, kafka.SubscriberConfig{
				Client: client(), Processor: stuck, MaxBatch: 1, MaxUnfinished: 5, Grace: 500 * time.Millisecond,
			})
			<-running
			<-running
			elapse(2 * stalledFor)
			l := &ledger{}
			var second assignments
			g.join(t, kafka.SubscriberConfig{Client: client(), Processor: l, Trace: second.trace()})
			second.await(t, 1)
			if err := first.stop(); err != nil {
				t.Errorf("Run = %v", err)
			}
			g.awaitConsumed(t)
		})
	})
}

// tell never blocks a handler, because a message may be delivered more often than the test receives.
func tell(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

const stalledFor = 300 * time.Millisecond

// TestPartitionsMoveAndNothingIsLost lets members come and go while messages are handled, some of them at a second try.
func TestPartitionsMoveAndNothingIsLost(t *testing.T) {
	eachCluster(t, func(t *testing.T, c cluster) {
		eachProtocol(t, func(t *testing.T, strategy sarama.BalanceStrategy) {
			const partitions, each = 4, 400
			g := c.group(t, partitions)
			for p := range int32(partitions) {
				var texts []string
				for i := range each {
					texts = append(texts, fmt.Sprintf("%d/%d", p, i))
				}
				g.produce(t, text(p, texts...)...)
			}
			var (
				mu     sync.Mutex
				done   = map[string]int{}
				failed = map[string]bool{}
			)
			handle := processor(func(ctx context.Context, msg *consumer.Message) error {
				elapse(2 * time.Millisecond)
				mu.Lock()
				defer mu.Unlock()
				if s := string(msg.Payload); strings.HasSuffix(s, "7") && !failed[s] {
					failed[s] = true
					return &consumer.RetryError{Err: errors.New("second try"), After: 50 * time.Millisecond}
				}
				done[string(msg.Payload)]++
				return nil
			})
			join := func() *member {
				return g.join(t, kafka.SubscriberConfig{
					Client:    dial(t, c.brokers, testConfig(strategy)),
					Processor: handle,
				})
			}
			first := join()
			elapse(300 * time.Millisecond)
			second := join()
			elapse(time.Second)
			if err := first.stop(); err != nil {
				t.Errorf("Run = %v", err)
			}
			third := join()
			g.awaitConsumed(t)
			for _, m := range []*member{second, third} {
				if err := m.stop(); err != nil {
					t.Errorf("Run = %v", err)
				}
			}
			mu.Lock()
			defer mu.Unlock()
			lost := 0
			for p := range partitions {
				for i := range each {
					if done[fmt.Sprintf("%d/%d", p, i)] == 0 {
						lost++
					}
				}
			}
			if lost > 0 {
				t.Errorf("%d of %d messages are acknowledged and were never handled", lost, partitions*each)
			}
		})
	})
}

// TestStaticMember stops a member with an InstanceId and starts it again: the others do not notice.
func TestStaticMember(t *testing.T) {
	eachCluster(t, func(t *testing.T, c cluster) {
		eachProtocol(t, func(t *testing.T, strategy sarama.BalanceStrategy) {
			g := c.group(t, 2)
			var l ledger
			join := func(id string, trace *driver.SourceTrace) *member {
				cfg := testConfig(strategy)
				cfg.Consumer.Group.InstanceId = id
				cfg.Consumer.Group.Session.Timeout = 2 * time.Minute // how soon it is back
				return g.join(t, kafka.SubscriberConfig{Client: dial(t, c.brokers, cfg), Processor: &l, Trace: trace})
			}
			var first, other, again assignments
			m := join("first", first.trace())
			first.await(t, 2)
			join("other", other.trace())
			other.await(t, 1)
			first.await(t, 1)
			before, held := other.generations(), first.held()
			if err := m.stop(); err != nil {
				t.Errorf("Run = %v", err)
			}
			g.produce(t, text(0, "a")...)
			g.produce(t, text(1, "b")...)
			join("first", again.trace())
			again.await(t, 1)
			g.awaitConsumed(t)
			if diff := cmp.Diff(held, again.held()); diff != "" {
				t.Errorf("the member got other partitions than before (-before +after):\n%s", diff)
			}
			if diff := cmp.Diff(before, other.generations()); diff != "" {
				t.Errorf("the other member went through a rebalance (-before +after):\n%s", diff)
			}
			got := l.list()
			slices.Sort(got)
			if diff := cmp.Diff([]string{"a", "b"}, got); diff != "" {
				t.Errorf("handled (-want +got):\n%s", diff)
			}
		})
	})
}

// TestTwoMembersUnderOneInstanceId: this is a mistake in a deployment. One of the members must stop with an error.
func TestTwoMembersUnderOneInstanceId(t *testing.T) {
	eachCluster(t, func(t *testing.T, c cluster) {
		g := c.group(t, 1)
		join := func(trace *driver.SourceTrace) *member {
			cfg := testConfig(sarama.NewBalanceStrategyRange())
			cfg.Consumer.Group.InstanceId = "same"
			return g.join(t, kafka.SubscriberConfig{
				Client: dial(t, c.brokers, cfg), Processor: &ledger{},
				Trace: trace,
			})
		}
		var first assignments
		older := join(first.trace())
		first.await(t, 1)
		join(nil)
		if err := older.await(); !errors.Is(err, sarama.ErrFencedInstancedId) || !strings.Contains(err.Error(),
			"InstanceId") {
			t.Errorf("Run = %v; want it to say that another member has its InstanceId", err)
		}
	})
}

// TestPausedPartitionComesBack has a member stop fetching, lose its partitions, and get them back.
func TestPausedPartitionComesBack(t *testing.T) {
	eachCluster(t, func(t *testing.T, c cluster) {
		eachProtocol(t, func(t *testing.T, strategy sarama.BalanceStrategy) {
			g := c.group(t, 2)
			back := make(chan struct{})
			p := processor(func(context.Context, *consumer.Message) error {
				select {
				case <-back:
					return nil
				default:
					return &consumer.RetryError{
						Err: errors.New("database is away"), After: 100 * time.Millisecond,
						Held: true,
					}
				}
			})
			join := func(trace *driver.SourceTrace) *member {
				return g.join(t, kafka.SubscriberConfig{
					Client: dial(t, c.brokers, testConfig(strategy)), Processor: p, MaxBatch: 1, MaxUnfinished: 5,
					Trace: trace,
				})
			}
			var first, second assignments
			join(first.trace())
			first.await(t, 2)
			for p := range int32(2) {
				g.produce(t, text(p, numbers(1000)...)...)
			}
			elapse(3 * stalledFor)
			other := join(second.trace())
			second.await(t, 1)
			if err := other.stop(); err != nil {
				t.Errorf("Run = %v", err)
			}
			first.await(t, 2)
			close(back)
			g.awaitConsumed(t)
		})
	})
}

// TestSharedClient runs several groups on one client. A strategy that remembers plans must not be shared among them;
// the race detector would find that.
func TestSharedClient(t *testing.T) {
	eachCluster(t, func(t *testing.T, c cluster) {
		client := dial(t, c.brokers, testConfig(sarama.NewBalanceStrategyCooperativeSticky()))
		var members [12]assignments
		var g *group
		for i := range members {
			if i%2 == 0 {
				g = c.group(t, 2)
			}
			g.join(t, kafka.SubscriberConfig{Client: client, Processor: &ledger{}, Trace: members[i].trace()})
		}
		for i := range members {
			members[i].await(t, 1)
		}
	})
}

// TestPoisonDoesNotBounceTheSession sends bytes that no handler can read, through a consumer.Consumer that parks them.
func TestPoisonDoesNotBounceTheSession(t *testing.T) {
	eachCluster(t, func(t *testing.T, c cluster) {
		eachProtocol(t, func(t *testing.T, strategy sarama.BalanceStrategy) {
			g := c.group(t, 1)
			store := consumertest.NewStore()
			type order struct{ ID string }
			p, err := consumer.New(consumer.Config[*deduptest.Tx]{
				Name: "billing", Store: store, Key: consumer.JSONKey("ID"), Logger: slog.New(slog.DiscardHandler),
				Handle: consumer.JSON(func(_ context.Context, tx *deduptest.Tx, o order) error { return tx.Add(o.ID) }),
			})
			if err != nil {
				t.Fatal(err)
			}
			g.produce(t, text(0, `{"ID":"1"}`, "\xff\xfe", "", `{"ID":"2"}`, `{"ID":""}`, `[`, `{"ID":"3"}`)...)
			g.produce(t, &sarama.ProducerMessage{Partition: 0}) // a tombstone
			var a assignments
			m := g.join(t, kafka.SubscriberConfig{
				Client: dial(t, c.brokers, testConfig(strategy)), Processor: p,
				Trace: a.trace(),
			})
			g.awaitConsumed(t)
			if err := m.stop(); err != nil {
				t.Errorf("Run = %v", err)
			}
			letters, err := store.DeadLetters(context.Background(), consumer.DeadLetterFilter{})
			if err != nil || len(letters) != 5 {
				t.Errorf("%d messages are parked (%v), want 5", len(letters), err)
			}
			for _, id := range []string{"1", "2", "3"} {
				if n := store.Database().Count(id); n != 1 {
					t.Errorf("order %s has %d effects", id, n)
				}
			}
			if g := a.generations(); len(g) != 1 {
				t.Errorf("the member went through generations %v; poison bounced its session", g)
			}
		})
	})
}
