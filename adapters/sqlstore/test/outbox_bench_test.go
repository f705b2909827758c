package sqlstore_test

import (
	"context"
	"database/sql"
	"fmt"
	"testing"
	"time"

	"github.com/txonce/txonce/adapters/sqlstore"
	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/internal/test/testdb"
	"github.com/txonce/txonce/outbox"
	"github.com/txonce/txonce/outbox/driver"
	"github.com/txonce/txonce/outbox/relay"
)

// confirmAll is a publisher that confirms each message and does nothing else.
type confirmAll struct{}

func (confirmAll) Publish(context.Context, []outbox.Message) []error { return nil }

func benchNodes(b *testing.B, each func(b *testing.B, n *node)) {
	b.Run("SQLite", func(b *testing.B) {
		d := openSQLite(b)
		each(b, newNode(b, openDB(b, "sqlite", d.dsn), sqlstore.Config{Dialect: sqlstore.SQLite}))
	})
	b.Run("PostgreSQL 15", func(b *testing.B) {
		d := openPostgres(b, testdb.Postgres(b))
		each(b, newNode(b, openDB(b, "pgx", d.dsn), sqlstore.Config{Dialect: sqlstore.Postgres}))
	})
	b.Run("MariaDB", func(b *testing.B) {
		d := openMySQL(b)
		each(b, newNode(b, d.db, sqlstore.Config{Dialect: sqlstore.MySQL}))
	})
}

// BenchmarkOutboxDrain measures how long a relay takes per message of 300 bytes, with 1,000 keys and a publisher that
// does nothing.
func BenchmarkOutboxDrain(b *testing.B) {
	benchNodes(b, func(b *testing.B, n *node) {
		for done := 0; done < b.N; {
			var msgs []outbox.Message
			for ; len(msgs) < 1000 && done < b.N; done++ {
				msgs = append(msgs, benchMessage(done))
			}
			if err := n.InTx(b.Context(), nil, func(tx *sql.Tx,
				_ []dedup.Claim,
			) error {
				return n.Enqueue(b.Context(), tx, msgs...)
			}); err != nil {
				b.Fatal(err)
			}
		}
		r, err := relay.New(relay.Config{Queue: n, Publisher: confirmAll{}})
		if err != nil {
			b.Fatal(err)
		}
		b.ResetTimer()
		published, err := r.RunOnce(b.Context())
		if err != nil || published != b.N {
			b.Fatalf("%d published, %v", published, err)
		}
		b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "msg/s")
	})
}

// BenchmarkOutboxEnqueue compares a transaction with one effect to transactions that also enqueue messages.
func BenchmarkOutboxEnqueue(b *testing.B) {
	benchNodes(b, func(b *testing.B, n *node) {
		for _, count := range []int{0, 1, 100} {
			b.Run(fmt.Sprintf("%d messages", count), func(b *testing.B) {
				for i := range b.N {
					msgs := make([]outbox.Message, count)
					for j := range msgs {
						msgs[j] = benchMessage(i*count + j)
					}
					err := n.InTx(b.Context(), nil, func(tx *sql.Tx, _ []dedup.Claim) error {
						if _, err := tx.ExecContext(b.Context(),
							`INSERT INTO effects (name) VALUES ('x')`); err != nil {
							return err
						}
						return n.Enqueue(b.Context(), tx, msgs...)
					})
					if err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	})
}

// BenchmarkOutboxStats measures one call of Stats with a backlog.
func BenchmarkOutboxStats(b *testing.B) {
	benchNodes(b, func(b *testing.B, n *node) {
		for i := range 100 {
			msgs := make([]outbox.Message, 2000)
			for j := range msgs {
				msgs[j] = benchMessage(i*len(msgs) + j)
			}
			if err := n.InTx(b.Context(), nil, func(tx *sql.Tx,
				_ []dedup.Claim,
			) error {
				return n.Enqueue(b.Context(), tx, msgs...)
			}); err != nil {
				b.Fatal(err)
			}
		}
		b.ResetTimer()
		var st outbox.Stats
		for range b.N {
			var err error
			if st, err = n.Outbox().Stats(b.Context()); err != nil {
				b.Fatal(err)
			}
		}
		b.ReportMetric(float64(st.Pending), "pending")
	})
}

func benchMessage(i int) outbox.Message {
	return outbox.Message{
		ID: fmt.Sprintf("message-%d", i), Topic: "bench", OrderingKey: fmt.Sprint(i % 1000),
		Payload: make([]byte, 300),
	}
}

// BenchmarkOutboxLease measures one call of Lease with different numbers of pending messages, of 1,000 keys.
func BenchmarkOutboxLease(b *testing.B) {
	benchNodes(b, func(b *testing.B, n *node) {
		for _, count := range []int{1, 50, 450} {
			b.Run(fmt.Sprintf("%d messages", count), func(b *testing.B) {
				s := open(b, n, time.Hour)
				renew(b, s)
				enqueue(b, n, messages("", count, 1000)...)
				for b.Loop() {
					msgs := lease(b, s)
					if len(msgs) != count {
						b.Fatalf("%d messages", len(msgs))
					}
					b.StopTimer()
					settle(b, s, outcomes(driver.Returned, msgs...))
					b.StartTimer()
				}
				settle(b, s, outcomes(driver.Sent, lease(b, s)...))
				if err := s.Close(b.Context()); err != nil {
					b.Fatal(err)
				}
			})
		}
	})
}
