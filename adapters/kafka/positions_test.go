package kafka_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/IBM/sarama"

	"github.com/txonce/txonce/adapters/kafka"
	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/consumer/consumertest"
	"github.com/txonce/txonce/consumer/driver"
	"github.com/txonce/txonce/dedup/deduptest"
)

// effects is a database in memory, with consumers that count each message in it.
type effects struct {
	db     *deduptest.Database
	before func(ctx context.Context, m *consumer.Message) error

	mu    sync.Mutex
	backs []driver.SourceEvent
}

func (e *effects) consumer(t *testing.T, name string) *consumer.Consumer[*deduptest.Tx] {
	t.Helper()
	c, err := consumer.New(consumer.Config[*deduptest.Tx]{
		Name: name, Store: consumertest.NewStoreOn(e.db), Window: 30 * 24 * time.Hour,
		Key: func(m *consumer.Message) (string, error) { return string(m.Payload), nil },
		Handle: func(ctx context.Context, tx *deduptest.Tx, m *consumer.Message) error {
			if e.before != nil {
				if err := e.before(ctx, m); err != nil {
					return err
				}
			}
			return tx.Add(name + " " + string(m.Payload))
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// join starts a Subscriber for a consumer of that name.
func (e *effects) join(t *testing.T, g *group, name string, strategy sarama.BalanceStrategy) *member {
	t.Helper()
	return g.join(t, kafka.SubscriberConfig{
		Client: dial(t, g.brokers, testConfig(strategy)), Processor: e.consumer(t, name), MaxBatch: 20,
		Trace: &driver.SourceTrace{WentBack: func(_ context.Context, ev driver.SourceEvent) {
			e.mu.Lock()
			defer e.mu.Unlock()
			e.backs = append(e.backs, ev)
		}},
	})
}

// await waits until each of texts has had one effect, and then compares once more.
func (e *effects) await(t *testing.T, name string, texts ...string) {
	t.Helper()
	check := func() error {
		for _, text := range texts {
			if n := e.db.Count(name + " " + text); n != 1 {
				return fmt.Errorf("%d effects of %s, want 1", n, text)
			}
		}
		return nil
	}
	eventually(t, check)
}

// wentBack returns how many messages were read again, as the hook says.
func (e *effects) wentBack() (events, messages int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, ev := range e.backs {
		messages += ev.Messages
	}
	return len(e.backs), messages
}

func some(from, to int) (texts []string) {
	for i := from; i < to; i++ {
		texts = append(texts, fmt.Sprintf("%05d", i))
	}
	return texts
}

// eachWay runs test on each cluster with each protocol.
func eachWay(t *testing.T, test func(t *testing.T, c cluster, strategy sarama.BalanceStrategy)) {
	eachCluster(t, func(t *testing.T, c cluster) {
		eachProtocol(t, func(t *testing.T, strategy sarama.BalanceStrategy) { test(t, c, strategy) })
	})
}

// TestDatabaseWentBack takes commits away from the database in each way: what was acknowledged is handled again.
func TestDatabaseWentBack(t *testing.T) {
	type way struct {
		name    string
		stopped bool // while no Subscriber runs
		back    func(*deduptest.Database, *deduptest.Snapshot)
		more    bool // messages arrive afterwards
	}
	promote, restore := (*deduptest.Database).Promote, (*deduptest.Database).Restore
	for _, w := range []way{
		{"another server while it runs", false, promote, true},
		{"another server while it is idle", false, promote, false},
		{"a backup while it runs", false, restore, true},
		{"a backup while it is idle", false, restore, false},
		{"another server while it is stopped", true, promote, false},
		{"a backup while it is stopped", true, restore, true},
	} {
		t.Run(w.name, func(t *testing.T) {
			eachWay(t, func(t *testing.T, c cluster, strategy sarama.BalanceStrategy) {
				g := c.group(t, 2)
				e := &effects{db: deduptest.NewDatabase()}
				m := e.join(t, g, "billing", strategy)
				g.produce(t, text(0, some(0, 50)...)...)
				g.produce(t, text(1, some(50, 100)...)...)
				e.await(t, "billing", some(0, 100)...)
				g.awaitConsumed(t)
				snapshot := e.db.Snapshot()
				g.produce(t, text(0, some(100, 150)...)...)
				e.await(t, "billing", some(0, 150)...)
				g.awaitConsumed(t)
				if w.stopped {
					if err := m.stop(); err != nil {
						t.Fatal(err)
					}
				}
				w.back(e.db, snapshot)
				if w.stopped {
					m = e.join(t, g, "billing", strategy)
				}
				all := 150
				if w.more {
					g.produce(t, text(0, some(150, 170)...)...)
					g.produce(t, text(1, some(170, 190)...)...)
					all = 190
				}
				e.await(t, "billing", some(0, all)...)
				g.awaitConsumed(t)
				if events, n := e.wentBack(); events != 1 || n != 50 {
					t.Errorf("%d reports that %d messages are read again, want 1 of 50", events, n)
				}
				if !strings.Contains(m.log.String(), "the database went back") {
					t.Error("the log does not say that the database went back")
				}
				if err := m.stop(); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// A server that is started again has lost nothing: nothing is reported, and nothing has a second effect.
func TestDatabaseStartedAgain(t *testing.T) {
	eachWay(t, func(t *testing.T, c cluster, strategy sarama.BalanceStrategy) {
		g := c.group(t, 2)
		e := &effects{db: deduptest.NewDatabase()}
		m := e.join(t, g, "billing", strategy)
		g.produce(t, text(0, some(0, 50)...)...)
		e.await(t, "billing", some(0, 50)...)
		e.db.Stop()
		e.db.Promote(e.db.Snapshot())
		g.produce(t, text(1, some(50, 100)...)...)
		e.db.Start()
		e.await(t, "billing", some(0, 100)...)
		g.awaitConsumed(t)
		if events, _ := e.wentBack(); events != 0 {
			t.Errorf("%d reports that the database went back", events)
		}
		if err := m.stop(); err != nil {
			t.Error(err)
		}
	})
}

// The offset that an operator sets is accepted, forward and back. Messages that were skipped stay skipped.
func TestOperatorMovesTheOffset(t *testing.T) {
	eachWay(t, func(t *testing.T, c cluster, strategy sarama.BalanceStrategy) {
		g := c.group(t, 1)
		e := &effects{db: deduptest.NewDatabase()}
		m := e.join(t, g, "billing", strategy)
		g.produce(t, text(0, some(0, 20)...)...)
		g.awaitConsumed(t)
		before := e.db.Snapshot()
		if err := m.stop(); err != nil {
			t.Fatal(err)
		}
		g.produce(t, text(0, some(20, 40)...)...)
		g.setOffset(t, 30)
		m = e.join(t, g, "billing", strategy)
		e.await(t, "billing", some(30, 40)...)
		g.awaitConsumed(t)
		if err := m.stop(); err != nil {
			t.Fatal(err)
		}
		if n := e.db.Count("billing 00025"); n != 0 {
			t.Errorf("a skipped message has %d effects", n)
		}

		// Now the database goes back to before the skip.
		e.db.Restore(before)
		g.refuses(t, kafka.SubscriberConfig{Processor: e.consumer(t, "billing"), Client: dial(t, g.brokers, testConfig(strategy))},
			"has skipped", "from 20 up to 30", "With the OFFSET ", "--bootstrap-server "+g.brokers[0], "--reset-offsets --to-offset OFFSET --dry-run")
		g.setOffset(t, 25) // back
		m = e.join(t, g, "billing", strategy)
		e.await(t, "billing", append(some(0, 20), some(25, 40)...)...)
		if err := m.stop(); err != nil {
			t.Error(err)
		}
	})
}

// Another database, or an empty one, knows nothing of the group: a person must decide.
func TestDatabaseWithoutPosition(t *testing.T) {
	eachWay(t, func(t *testing.T, c cluster, strategy sarama.BalanceStrategy) {
		g := c.group(t, 1)
		empty := deduptest.NewDatabase().Snapshot()
		e := &effects{db: deduptest.NewDatabase()}
		m := e.join(t, g, "billing", strategy)
		g.produce(t, text(0, some(0, 20)...)...)
		g.awaitConsumed(t)
		e.db.Restore(empty) // while it runs
		if err := m.await(); err == nil || !strings.Contains(err.Error(), "--reset-offsets") {
			t.Errorf("Run = %v; want it to say what to do", err)
		}
		g.refuses(t, kafka.SubscriberConfig{Processor: e.consumer(t, "billing"), Client: dial(t, g.brokers, testConfig(strategy))},
			"the database does not know", "--reset-offsets --to-offset OFFSET --dry-run")
		g.setOffset(t, 0)
		m = e.join(t, g, "billing", strategy)
		e.await(t, "billing", some(0, 20)...)
		if err := m.stop(); err != nil {
			t.Error(err)
		}
	})
}

// Groups of one topic, and consumers of one database, have positions of their own.
func TestPositionsOfTwoGroups(t *testing.T) {
	eachWay(t, func(t *testing.T, c cluster, strategy sarama.BalanceStrategy) {
		g := c.group(t, 2)
		other := *g
		other.name += "-other"
		e := &effects{db: deduptest.NewDatabase()}
		m, n := e.join(t, g, "billing", strategy), e.join(t, &other, "shipping", strategy)
		g.produce(t, text(0, some(0, 30)...)...)
		e.await(t, "billing", some(0, 30)...)
		e.await(t, "shipping", some(0, 30)...)
		g.awaitConsumed(t)
		other.awaitConsumed(t)
		if err := n.stop(); err != nil {
			t.Error(err)
		}
		snapshot := e.db.Snapshot()
		g.produce(t, text(1, some(30, 60)...)...)
		e.await(t, "billing", some(0, 60)...)
		g.awaitConsumed(t)
		e.db.Promote(snapshot)
		n = e.join(t, &other, "shipping", strategy)
		e.await(t, "billing", some(0, 60)...)
		e.await(t, "shipping", some(0, 60)...)
		if events, messages := e.wentBack(); events != 1 || messages != 30 {
			t.Errorf("%d reports that %d messages are read again, want 1 of 30", events, messages)
		}
		for _, m := range []*member{m, n} {
			if err := m.stop(); err != nil {
				t.Error(err)
			}
		}
	})
}

// A partition that is added while a member runs has a position like the others.
func TestPositionOfAnAddedPartition(t *testing.T) {
	eachWay(t, func(t *testing.T, c cluster, strategy sarama.BalanceStrategy) {
		g := c.group(t, 1)
		e := &effects{db: deduptest.NewDatabase()}
		m := e.join(t, g, "billing", strategy)
		g.produce(t, text(0, some(0, 10)...)...)
		g.awaitConsumed(t)
		snapshot := e.db.Snapshot()
		admin, err := sarama.NewClusterAdminFromClient(g.client)
		if err != nil {
			t.Fatal(err)
		}
		if err := admin.CreatePartitions(g.topic, 2, nil, false); err != nil {
			t.Fatal(err)
		}
		g.produce(t, text(1, some(10, 20)...)...)
		if err := m.stop(); err != nil { // sarama looks for new partitions each ten minutes
			t.Fatal(err)
		}
		m = e.join(t, g, "billing", strategy)
		e.await(t, "billing", some(0, 20)...)
		g.awaitConsumed(t)
		e.db.Promote(snapshot) // it does not know the second partition
		if err := m.await(); err == nil || !strings.Contains(err.Error(), "the database does not know") {
			t.Errorf("Run = %v; want it to say that the database does not know the partition", err)
		}
	})
}

// setOffset does what an operator's tool does: it commits an offset without metadata while no member runs.
func (g *group) setOffset(t *testing.T, offset int64) {
	t.Helper()
	eventually(t, func() error {
		coordinator, err := g.client.Coordinator(g.name)
		if err != nil {
			return err
		}
		in := &sarama.OffsetCommitRequest{
			Version: 2, ConsumerGroup: g.name, ConsumerGroupGeneration: sarama.GroupGenerationUndefined, RetentionTime: -1,
		}
		in.AddBlock(g.topic, 0, offset, 0, "")
		out, err := coordinator.CommitOffset(in)
		if err != nil {
			return errors.Join(err, g.client.RefreshCoordinator(g.name))
		}
		if err := out.Errors[g.topic][0]; err != sarama.ErrNoError {
			return errors.Join(err, g.client.RefreshCoordinator(g.name))
		}
		return nil
	})
}
