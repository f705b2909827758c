package sqlstore_test

import (
	"context"
	"database/sql"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/txonce/txonce/adapters/sqlstore"
	"github.com/txonce/txonce/dedup/deduptest"
	"github.com/txonce/txonce/internal/test/testdb"
)

// listenByPgx is the example of OutboxConfig.Listen. It counts the calls that run.
func listenByPgx(dsn string, running *atomic.Int64) func(context.Context, []string, func()) error {
	return func(ctx context.Context, statements []string, notified func()) error {
		running.Add(1)
		defer running.Add(-1)
		conn, err := pgx.Connect(ctx, dsn)
		if err != nil {
			return err
		}
		defer conn.Close(context.WithoutCancel(ctx))
		for _, s := range statements {
			if _, err := conn.Exec(ctx, s); err != nil {
				return err
			}
		}
		for err == nil {
			notified()
			_, err = conn.WaitForNotification(ctx)
		}
		return err
	}
}

// A commit in one process wakes the relays of another one that listens, also after the connection was lost. The
// listener runs while there are sessions.
func TestOutboxPostgresListens(t *testing.T) {
	t.Parallel()
	d := openPostgresAt(t, testdb.Schema(t, testdb.Postgres(t)))
	writer := d.open(t, d.dsn, deduptest.Options{}) // it listens to nothing
	var running atomic.Int64
	relay := newNode(t, openDB(t, "pgx", d.dsn), sqlstore.Config{
		Dialect: sqlstore.Postgres, Outbox: sqlstore.OutboxConfig{Listen: listenByPgx(d.dsn, &running)},
	})
	one, two := open(t, relay, time.Hour), open(t, relay, time.Hour)
	wake := func(why string) {
		t.Helper()
		if !woken(one, time.Minute) {
			t.Fatalf("not woken %s", why)
		}
	}
	wake("when it listens")
	if hold := renew(t, one); !hold.Announced {
		t.Error("the relay does not know that it is notified")
	}
	deaf := open(t, writer, time.Hour)
	if hold := renew(t, deaf); hold.Announced {
		t.Error("a relay that does not listen believes that it is notified")
	}
	drain := func() {
		for woken(one, 0) {
		}
	}
	drain()
	enqueue(t, writer, messages("a", 1, 1)...)
	wake("by a commit of InTx elsewhere")
	drain()
	err := inTx(t.Context(), writer.db, nil, func(tx *sql.Tx) error { return writer.Enqueue(t.Context(), tx, messages("b", 1, 1)...) })
	if err != nil {
		t.Fatal(err)
	}
	writer.Wake(t.Context())
	wake("by Wake elsewhere")

	listeners := `SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
		WHERE query = format('LISTEN "txonce_outbox_%s"', (SELECT relnamespace FROM pg_class WHERE oid = 'txonce_shards'::regclass))`
	var n int
	if err := writer.db.QueryRowContext(t.Context(), listeners).Scan(&n); err != nil || n != 1 {
		t.Fatalf("%d connections listened for two sessions: %v", n, err)
	}
	drain()
	enqueue(t, writer, messages("c", 1, 1)...) // maybe before it listens again
	wake("when it listens again")

	if err := one.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if running.Load() == 0 && !woken(two, time.Minute) {
		t.Error("the listener ended before the last session")
	}
	if err := two.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := running.Load(); n != 0 {
		t.Errorf("%d listeners run without a session", n)
	}
}

// A Listen that ends its goroutine has returned: the relay is not notified any more, and Listen is called again. What
// it calls later does not count.
func TestOutboxPostgresListenEndsItsGoroutine(t *testing.T) {
	t.Parallel()
	d := openPostgresAt(t, testdb.Schema(t, testdb.Postgres(t)))
	calls, proceed := make(chan func()), make(chan struct{})
	relay := newNode(t, openDB(t, "pgx", d.dsn), sqlstore.Config{
		Dialect: sqlstore.Postgres, Outbox: sqlstore.OutboxConfig{Listen: func(ctx context.Context, _ []string, notified func()) error {
			select {
			case calls <- notified:
				<-proceed
				runtime.Goexit()
			case <-ctx.Done():
			}
			return nil
		}},
	})
	s := open(t, relay, time.Hour)
	announced := func(want bool, when string) {
		t.Helper()
		if hold := renew(t, s); hold.Announced != want {
			t.Errorf("%s, Hold.Announced is %v, want %v", when, hold.Announced, want)
		}
	}
	notified := <-calls
	notified()
	announced(true, "while Listen runs")
	close(proceed)
	select {
	case again := <-calls:
		notified()
		announced(false, "when the next call of Listen has notified of nothing")
		again()
	case <-time.After(time.Minute):
		announced(false, "after Listen has ended its goroutine")
		t.Error("Listen was not called again")
	}
}

// A Listen that does not return when its context ends delays neither other relays nor the end of the process.
func TestOutboxPostgresListenDoesNotReturn(t *testing.T) {
	t.Parallel()
	d := openPostgresAt(t, testdb.Schema(t, testdb.Postgres(t)))
	called, proceed := make(chan struct{}), make(chan struct{})
	defer close(proceed)
	relay := newNode(t, openDB(t, "pgx", d.dsn), sqlstore.Config{
		Dialect: sqlstore.Postgres, Outbox: sqlstore.OutboxConfig{Listen: func(context.Context, []string, func()) error {
			select {
			case called <- struct{}{}:
				<-proceed
			case <-proceed:
			}
			return nil
		}},
	})
	s, other := open(t, relay, time.Hour), open(t, d.open(t, d.dsn, deduptest.Options{}), time.Hour)
	renew(t, s)
	<-called
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	closed := make(chan error, 1)
	go func() { closed <- s.Close(ctx) }()
	for hold := renew(t, other); hold.Shards < hold.TotalShards; hold = renew(t, other) {
		if ctx.Err() != nil || len(closed) > 0 {
			t.Fatalf("the next relay holds %d of %d shards, and Close waits for Listen", hold.Shards, hold.TotalShards)
		}
	}
	open(t, relay, time.Hour)
	<-called // for the next session
	cancel()
	select {
	case err := <-closed:
		if err == nil || !strings.Contains(err.Error(), "Config.Outbox.Listen has not returned") {
			t.Errorf("Close = %v, want an error that names Config.Outbox.Listen", err)
		}
	case <-time.After(20 * time.Second):
		t.Error("Close waits for Listen after its context has ended")
	}
}

func TestOutboxListenNeedsPostgres(t *testing.T) {
	_, err := sqlstore.New(sqlstore.Config{
		DB: openSQLite(t).db, Dialect: sqlstore.SQLite,
		Outbox: sqlstore.OutboxConfig{Listen: func(context.Context, []string, func()) error { return nil }},
	})
	if err == nil || !strings.Contains(err.Error(), "Config.Outbox.Listen") {
		t.Errorf("New = %v, want an error that names Config.Outbox.Listen", err)
	}
}
