package relay_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/txonce/txonce/outbox"
	"github.com/txonce/txonce/outbox/driver"
	"github.com/txonce/txonce/outbox/relay"
)

// endless is a Queue that always has more messages and costs nothing: the benchmark measures only the relay's own work.
type endless struct {
	batch []driver.Leased
	left  atomic.Int64
}

func (q *endless) Open(context.Context, driver.SessionOptions) (driver.Session, error) { return q, nil }

func (q *endless) Renew(context.Context) (driver.Hold, error) {
	return driver.Hold{Until: time.Now().Add(time.Minute), Shards: 64, TotalShards: 64, Relays: 1}, nil
}

func (q *endless) Lease(context.Context, driver.Want) ([]driver.Leased, error) {
	n := min(q.left.Load(), int64(len(q.batch)))
	q.left.Add(-n)
	return q.batch[:n], nil
}

func (q *endless) Settle(_ context.Context, outcomes []driver.Outcome) error {
	for i := range outcomes {
		if outcomes[i].Verdict == driver.Returned {
			q.left.Add(1)
		}
	}
	return nil
}

func (q *endless) Close(context.Context) error { return nil }

// BenchmarkRelay measures the relay's own cost per message, with a publisher that confirms at once.
func BenchmarkRelay(b *testing.B) {
	confirm := publisherFunc(func(context.Context, []outbox.Message) []error { return nil })
	for _, keys := range []int{1000, 100, 1} {
		b.Run(fmt.Sprintf("%d keys in a batch of 1000", keys), func(b *testing.B) {
			q := &endless{batch: make([]driver.Leased, 1000)}
			q.left.Store(int64(b.N))
			for i := range q.batch {
				q.batch[i] = driver.Leased{Stored: outbox.Stored{Message: outbox.Message{
					ID: fmt.Sprint(i), Topic: "orders", OrderingKey: fmt.Sprint(i % keys), Payload: make([]byte, 300),
				}, Seq: int64(i), Enqueued: time.Now()}}
			}
			r := newRelay(b, relay.Config{Queue: q, Publisher: confirm})
			b.ReportAllocs()
			if n, err := r.RunOnce(b.Context()); n != b.N || err != nil {
				b.Fatalf("RunOnce = %d, %v", n, err)
			}
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "msg/s")
		})
	}
}
