package kafka_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/IBM/sarama"

	"github.com/txonce/txonce/adapters/kafka"
	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/consumer/consumertest"
	"github.com/txonce/txonce/dedup/deduptest"
	"github.com/txonce/txonce/dedup/driver"
)

// killed makes the rows of a consumer those of sessions that were killed twice, with the next n messages in work.
func (e *effects) killed(t *testing.T, name string, n int64) {
	t.Helper()
	store := consumertest.NewStoreOn(e.db)
	rows, err := store.ListPositions(t.Context(), name)
	if err != nil || len(rows) == 0 {
		t.Fatalf("%d rows, %v", len(rows), err)
	}
	for _, row := range rows {
		_, err := store.ChangePosition(t.Context(), row.PositionID, func(was *driver.Position) (*driver.Position, error) {
			now := *was
			now.Open, now.Tries, now.Suspect = true, 2, was.Next+n
			return &now, nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

// No message after the suspects runs while a suspect may be tried: it could kill the process, and the suspect would be
// counted for it. A suspect that was tried and has failed is retried like any other message, and nothing waits for it,
// nor for later suspects of its ordering key.
func TestMessagesAfterSuspectsWait(t *testing.T) {
	const suspects = 10
	for _, unfinished := range []int{1000, 15} { // with 15 the partition is full while it holds messages back
		t.Run(fmt.Sprint("max unfinished ", unfinished), func(t *testing.T) {
			eachWay(t, func(t *testing.T, c cluster, strategy sarama.BalanceStrategy) {
				g := c.group(t, 1)
				e := &effects{db: deduptest.NewDatabase()}
				first := e.join(t, g, "billing", strategy)
				g.produce(t, text(0, some(0, 5)...)...)
				e.await(t, "billing", some(0, 5)...)
				g.awaitConsumed(t)
				if err := first.stop(); err != nil {
					t.Fatal(err)
				}
				e.killed(t, "billing", suspects)
				var untried atomic.Int64
				untried.Store(suspects - 1) // one waits behind 00007
				var once sync.Map
				e.before = func(_ context.Context, m *consumer.Message) error {
					if !m.Suspect {
						if n := untried.Load(); n > 0 {
							t.Errorf("%s runs while %d suspects are untried", m.Payload, n)
						}
						return nil
					}
					if _, again := once.LoadOrStore(string(m.Payload), true); again {
						return nil
					}
					<-time.After(60 * time.Millisecond) // in all longer than pauseAfter
					untried.Add(-1)
					if string(m.Payload) == "00007" {
						return consumer.RetryAfter(errors.New("not yet"), time.Hour)
					}
					return nil
				}
				messages := text(0, some(5, 205)...)
				messages[2].Key, messages[4].Key = sarama.StringEncoder("k"), sarama.StringEncoder("k")
				g.produce(t, messages...)
				began := time.Now()
				g.join(t, kafka.SubscriberConfig{
					Client: dial(t, g.brokers, testConfig(strategy)), Processor: e.consumer(t, "billing"),
					MaxBatch: 4, MaxUnfinished: unfinished,
				})
				e.await(t, "billing", slices.Concat(some(0, 7), some(8, 9), some(10, 205))...)
				if time.Since(began) >= kafka.HoldMost {
					t.Error("messages waited for a suspect that was tried and failed")
				}
				// the next kill makes more messages suspects
				rows, err := consumertest.NewStoreOn(e.db).ListPositions(t.Context(), "billing")
				if want := int64(5 + suspects + 2*unfinished); err != nil || rows[0].Suspect != want || rows[0].Tries != 1 {
					t.Errorf("%v: the row is %+v; want 1 try, and suspects before %d", err, rows, want)
				}
			})
		})
	}
}
