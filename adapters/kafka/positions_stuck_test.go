package kafka_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/IBM/sarama"

	"github.com/txonce/txonce/adapters/kafka"
	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/consumer/consumertest"
	"github.com/txonce/txonce/dedup/deduptest"
)

// A backup is restored into the running server while a message is not finished, for long, and later ones are. The
// position has not moved since the backup, and the later ones are handled again all the same.
func TestBackupRestoredBehindAnUnfinishedMessage(t *testing.T) {
	eachWay(t, func(t *testing.T, c cluster, strategy sarama.BalanceStrategy) {
		g := c.group(t, 1)
		e := &effects{db: deduptest.NewDatabase()}
		var once sync.Once
		blocked, release := make(chan struct{}), make(chan struct{})
		e.before = func(_ context.Context, m *consumer.Message) error {
			if string(m.Payload) == "00000" {
				once.Do(func() { close(blocked) })
				<-release
			}
			return nil
		}
		m := g.join(t, kafka.SubscriberConfig{
			Client: dial(t, g.brokers, testConfig(strategy)), Processor: e.consumer(t, "billing"), MaxBatch: 1, Concurrency: 4,
		})
		g.produce(t, keyed(0, "a", "00000")...)
		<-blocked
		snapshot, began := e.db.Snapshot(), e.epochs(t)
		later := some(1, 20)
		for _, text := range later {
			g.produce(t, keyed(0, "key of "+text, text)...)
		}
		e.await(t, "billing", later...)
		for deadline := time.Now().Add(20 * time.Second); e.epochs(t) == began && time.Now().Before(deadline); {
			elapse(50 * time.Millisecond)
		}
		if e.epochs(t) == began {
			close(release)
			t.Fatal("the row has not changed for 20 s, so a restored backup would not show")
		}
		e.db.Restore(snapshot)
		close(release)
		e.await(t, "billing", some(0, 20)...)
		g.awaitConsumed(t)
		if err := m.stop(); err != nil {
			t.Error(err)
		}
	})
}

// epochs adds the epochs of all rows.
func (e *effects) epochs(t *testing.T) (n int64) {
	t.Helper()
	rows, err := consumertest.NewStoreOn(e.db).ListPositions(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range rows {
		n += row.Epoch
	}
	return n
}
