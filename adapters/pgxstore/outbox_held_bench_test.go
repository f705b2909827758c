package pgxstore_test

import (
	"context"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/txonce/txonce/adapters/pgxstore"
	"github.com/txonce/txonce/internal/test/testdb"
	"github.com/txonce/txonce/outbox"
)

// BenchmarkOutboxHeldTransaction measures a relay while another transaction is held open: how long Lease and Settle take under
// a steady load at the end, and how fast a backlog is drained then. Nothing is published. Run it with -benchtime 1x.
// TXONCE_HELD sets how long the transaction is held, 10 s by default.
func BenchmarkOutboxHeldTransaction(b *testing.B) {
	held := 10 * time.Second
	if s := os.Getenv("TXONCE_HELD"); s != "" {
		var err error
		if held, err = time.ParseDuration(s); err != nil {
			b.Fatal(err)
		}
	}
	for _, holds := range []struct{ name, sql string }{
		{"nothing", ``},
		{"snapshot", `BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT * FROM effects`},
		{"xid", `BEGIN ISOLATION LEVEL REPEATABLE READ; INSERT INTO effects VALUES ('open')`},
	} {
		b.Run(holds.name, func(b *testing.B) {
			for range b.N {
				besideHeld(b, holds.sql, held)
			}
		})
	}
}

const heldLoad = 100 // messages every 20 ms

func besideHeld(b *testing.B, hold string, held time.Duration) {
	db := newOutboxDB(b, testdb.Postgres, 8)
	store := newStore(b, pgxstore.Config{Pool: db.pool})
	conn, err := pgx.Connect(b.Context(), db.dsn)
	if err != nil {
		b.Fatal(err)
	}
	defer conn.Close(b.Context())
	if _, err := conn.PgConn().Exec(b.Context(), hold).ReadAll(); err != nil {
		b.Fatal(err)
	}
	s, err := store.Open(b.Context(), outbox.SessionOptions{Name: "bench", TTL: time.Hour})
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close(context.WithoutCancel(b.Context()))
	if _, err := s.Renew(b.Context()); err != nil {
		b.Fatal(err)
	}

	ctx, stop := context.WithCancel(b.Context())
	var others sync.WaitGroup
	others.Go(func() {
		each(ctx, 20*time.Millisecond, func() { db.load(b, heldLoad) })
	})
	others.Go(func() {
		each(ctx, time.Second, func() {
			if err := s.(outbox.Maintainer).Maintain(b.Context()); err != nil {
				b.Error(err)
			}
		})
	})
	var turns, n int
	var took time.Duration // the time of the relay's turns in the last fifth
	for began := time.Now(); time.Since(began) < held; {
		start := time.Now()
		done := relayTurn(b, s)
		if time.Since(began) > held*4/5 {
			turns, n, took = turns+1, n+done, took+time.Since(start)
		}
		if done < 2*heldLoad {
			pause(2 * time.Millisecond)
		}
	}
	b.ReportMetric(took.Seconds()*1000/float64(max(turns, 1)), "ms/turn")
	b.ReportMetric(float64(db.bytes(b))/1e6, "MB")

	backlog := 50_000
	for range 10 {
		db.load(b, backlog/10)
	}
	began := time.Now()
	for n = 0; n < backlog; {
		n += relayTurn(b, s)
	}
	b.ReportMetric(float64(n)/time.Since(began).Seconds(), "drained/s")
	stop()
	others.Wait()
}

// load commits n messages.
func (db *outboxDB) load(tb testing.TB, n int) {
	db.exec(tb, `INSERT INTO outbox_messages (shard, id, topic, key, payload)
SELECT i % 64, i::text, 'events', convert_to((i % 1000)::text, 'UTF8'), decode(repeat('58', 300), 'hex') FROM generate_series(1, $1::int) AS i`, n)
}

func (db *outboxDB) bytes(tb testing.TB) (n int64) {
	if err := db.pool.QueryRow(tb.Context(), `SELECT pg_total_relation_size('outbox_messages')`).Scan(&n); err != nil {
		tb.Fatal(err)
	}
	return n
}

// relayTurn leases and settles once.
func relayTurn(tb testing.TB, s outbox.Session) int {
	leased, err := s.Lease(tb.Context(), outbox.Want{Limit: 1000})
	if err != nil {
		tb.Fatal(err)
	}
	outcomes := make([]outbox.Outcome, len(leased))
	for i, l := range leased {
		outcomes[i] = outbox.Outcome{Leased: l, Verdict: outbox.Sent}
	}
	if err := s.Settle(tb.Context(), outcomes); err != nil {
		tb.Fatal(err)
	}
	return len(leased)
}

func each(ctx context.Context, every time.Duration, do func()) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			do()
		}
	}
}

// BenchmarkOutboxStats measures Stats with a million pending messages.
func BenchmarkOutboxStats(b *testing.B) {
	db := newOutboxDB(b, testdb.Postgres, 2)
	for range 20 {
		db.load(b, 50_000)
	}
	want := int64(1_000_000)
	for b.Loop() {
		st, err := db.store.Outbox().Stats(b.Context())
		if err != nil {
			b.Fatal(err)
		}
		if !st.Estimated || st.PendingAge <= 0 || st.Pending < want*85/100 || st.Pending > want*115/100 {
			b.Fatalf("Stats say %d pending, estimated %v, age %v", st.Pending, st.Estimated, st.PendingAge)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Milliseconds())/float64(b.N), "ms/scrape")
}
