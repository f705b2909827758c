package pgxstore_test

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"go.uber.org/goleak"

	"github.com/txonce/txonce/adapters/pgxstore"
	"github.com/txonce/txonce/internal/dialect"
	"github.com/txonce/txonce/internal/test/leaktest"
	"github.com/txonce/txonce/internal/test/matrix"
	"github.com/txonce/txonce/internal/test/testdb"
	"github.com/txonce/txonce/outbox/driver"
)

func woken(wake <-chan struct{}) bool {
	select {
	case <-wake:
		return true
	default:
		return false
	}
}

// awaitWake fails the test if no notification arrives. Other tests would not notice, because relays poll.
func awaitWake(t *testing.T, wake <-chan struct{}) {
	t.Helper()
	select {
	case <-wake:
	case <-time.After(2 * time.Minute):
		t.Fatal("not woken")
	}
}

// A commit with messages notifies a session in the same process, after the commit. Nothing else notifies it.
func TestOutboxWakesAfterCommit(t *testing.T) {
	db := newOutboxDB(t, testdb.Postgres, 2)
	wake, stop := pgxstore.Subscribe(db.store)
	defer stop()
	boom := errors.New("boom")
	for _, tt := range []struct {
		name string
		do   func(s session, tx pgx.Tx) error
		want bool
	}{
		{"nothing", func(session, pgx.Tx) error { return nil }, false},
		{"messages", func(s session, tx pgx.Tx) error { s.enqueue(tx, "a"); return nil }, true},
		{"messages that were written before COMMIT", func(s session, tx pgx.Tx) error { s.enqueue(tx, "b"); _ = tx.Conn(); return nil }, true},
		{"messages through a wrapper", func(s session, tx pgx.Tx) error { s.enqueue(wrapped{tx}, "c"); return nil }, true},
		{"messages of a handler that fails", func(s session, tx pgx.Tx) error { s.enqueue(tx, "d"); return boom }, false},
		{"messages that the database refuses", func(s session, tx pgx.Tx) error {
			s.enqueue(tx, "e")
			s.exec(tx, `DROP TABLE outbox_messages`)
			return nil
		}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_ = db.inTx(t.Context(), func(tx pgx.Tx) error {
				err := tt.do(session{t, db}, tx)
				if woken(wake) {
					t.Error("woken before the commit")
				}
				return err
			})
			if got := woken(wake); got != tt.want {
				t.Errorf("woken %v, want %v", got, tt.want)
			}
		})
	}
	other := newStore(t, pgxstore.Config{Pool: db.pool})
	otherWake, stopOther := pgxstore.Subscribe(other)
	defer stopOther()
	db.store.Wake(t.Context())
	if !woken(wake) || woken(otherWake) {
		t.Error("want Wake to notify the sessions on its Store, and no others")
	}
	stop()
	db.store.Wake(t.Context())
	if woken(wake) {
		t.Error("woken after stop")
	}
}

func TestOutboxWakesForMessagesOfAnotherStore(t *testing.T) {
	db := newOutboxDB(t, testdb.Postgres, 2)
	other := newStore(t, pgxstore.Config{Pool: db.pool})
	wake, stop := pgxstore.Subscribe(other)
	defer stop()
	if err := db.inTx(t.Context(), func(tx pgx.Tx) error { return other.Enqueue(t.Context(), tx, message("a")) }); err != nil {
		t.Fatal(err)
	}
	if !woken(wake) {
		t.Error("the Store that has enqueued was not woken")
	}
}

// A commit notifies sessions that listen through another Store and another pool. This takes none of the pool's
// connections, and works again after the connection was lost.
func TestOutboxWakesAcrossProcesses(t *testing.T) {
	for name, server := range map[string]func(testing.TB) string{
		"postgres15": testdb.Postgres,
		"postgres18": testdb.Postgres18,
	} {
		if !matrix.RunsOn(name, t.Name()) {
			continue
		}
		t.Run(name, func(t *testing.T) { // not in parallel: it counts goroutines
			// in a schema of another test a session may still be listening for a moment
			db := newOutboxDBAt(t, testdb.Schema(t, server(t)), 2)
			pool := testPool(t, db.dsn, 1)
			conn, err := pool.Acquire(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Release()
			ignored := goleak.IgnoreCurrent()
			schema := db.strings(t, `SELECT current_schema()`)[0]
			relay := newStore(t, pgxstore.Config{Pool: pool, Schema: schema}) // names the same schema in another way
			wake, stop := pgxstore.Listen(t.Context(), relay)
			defer stop()
			awaitWake(t, wake) // the first notification means that it listens
			commit := func(id string) {
				t.Helper()
				if err := db.inTx(t.Context(), func(tx pgx.Tx) error { return db.store.Enqueue(t.Context(), tx, message(id)) }); err != nil {
					t.Fatal(err)
				}
			}
			commit("a")
			awaitWake(t, wake)
			if err := pgx.BeginFunc(t.Context(), db.pool,
				func(tx pgx.Tx) error { return db.store.Enqueue(t.Context(), tx, message("b")) }); err != nil {
				t.Fatal(err)
			}
			db.store.Wake(t.Context())
			awaitWake(t, wake)

			if n := len(db.listeners(t)); n != 1 {
				t.Errorf("%d connections listen, want 1", n)
			}
			again, stopAgain := pgxstore.Listen(t.Context(), relay) // a second session shares the connection
			commit("c")
			awaitWake(t, wake)
			awaitWake(t, again)
			if n := len(db.listeners(t)); n != 1 {
				t.Errorf("%d connections listen for two sessions, want 1", n)
			}
			stopAgain()

			drain(wake)
			db.exec(t, `SELECT pg_terminate_backend($1::int)`, db.listeners(t)[0])
			awaitWake(t, wake) // for commits that were missed while disconnected
			commit("d")
			awaitWake(t, wake)
			stop()
			stop() // the second call does nothing
			leaktest.None(t, ignored)
		})
	}
}

// A NOTIFY takes a server-wide lock. None is sent before a session listens, nor after the last one has stopped.
func TestOutboxNotifiesNobodyWhereNobodyListens(t *testing.T) {
	servers(t, func(t *testing.T, server func(testing.TB) string) {
		// in a schema of another test a session may still be listening for a moment
		db := newOutboxDBAt(t, testdb.Schema(t, server(t)), 2)
		sent := func() int64 {
			t.Helper()
			tag, err := db.pool.Exec(t.Context(), dialect.NewPostgresOutboxWrite("").Notify, "")
			if err != nil {
				t.Fatal(err)
			}
			return tag.RowsAffected()
		}
		if n := sent(); n != 0 {
			t.Fatalf("%d NOTIFYs before a session listens", n)
		}
		wake, stop := pgxstore.Listen(t.Context(), db.store)
		defer stop()
		awaitWake(t, wake)
		if n := sent(); n != 1 {
			t.Errorf("%d NOTIFYs while a session listens", n)
		}
		stop()
		for end := time.Now().Add(time.Minute); sent() != 0; { // the server ends the session with a delay
			if time.Now().After(end) {
				t.Fatal("NOTIFYs are sent after the last session stopped listening")
			}
		}
	})
}

func drain(wake <-chan struct{}) {
	for woken(wake) {
	}
}

// listeners returns the processes that listen on the channel of db's schema.
func (db *outboxDB) listeners(t *testing.T) []string {
	return db.strings(t, `SELECT pid::text FROM pg_stat_activity
		WHERE query = format('LISTEN "txonce_outbox_%s"', (SELECT relnamespace FROM pg_class WHERE oid = 'txonce_shards'::regclass))`)
}

// If no server answers, listening only tries to connect now and then, and stops at once when asked to.
func TestOutboxListensToNobody(t *testing.T) {
	pool, err := pgxpool.New(t.Context(), "postgres://nobody@127.0.0.1:1/none")
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	ignored := goleak.IgnoreCurrent()
	asked := make(chan struct{}, 100)
	cfg := pool.Config()
	cfg.BeforeConnect = func(context.Context, *pgx.ConnConfig) error { asked <- struct{}{}; return nil }
	hooked, err := pgxpool.NewWithConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	store := newStore(t, pgxstore.Config{Pool: hooked})
	wake, stop := pgxstore.Listen(t.Context(), store)
	for range 2 {
		<-asked // the pool's hook was called, and a second attempt follows
	}
	store.Wake(t.Context())
	awaitWake(t, wake)
	stop()
	hooked.Close()
	leaktest.None(t, ignored)
}

// notifications records the NOTIFYs of a schema, and the state of the connection when each was sent.
type notifications struct {
	mu     sync.Mutex
	within int // sent within a transaction
	sent   int
}

func (n *notifications) TraceQueryStart(ctx context.Context, conn *pgx.Conn,
	d pgx.TraceQueryStartData,
) context.Context {
	n.count(conn, d.SQL)
	return ctx
}
func (n *notifications) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}
func (n *notifications) TraceBatchStart(ctx context.Context, conn *pgx.Conn,
	d pgx.TraceBatchStartData,
) context.Context {
	for i, q := range d.Batch.QueuedQueries {
		n.count(conn, q.SQL)
		if i > 0 && notifies(q.SQL) {
			n.mu.Lock()
			n.within++
			n.mu.Unlock()
		}
	}
	return ctx
}
func (n *notifications) TraceBatchQuery(context.Context, *pgx.Conn, pgx.TraceBatchQueryData) {}
func (n *notifications) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData)     {}

func notifies(sql string) bool { return strings.Contains(strings.ToLower(sql), "notify") }

// counts returns how many were sent, and how many of them within a transaction.
func (n *notifications) counts() (sent, within int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.sent, n.within
}

func (n *notifications) count(conn *pgx.Conn, sql string) {
	if !notifies(sql) {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.sent++
	if conn.PgConn().TxStatus() != 'I' {
		n.within++
	}
}

// newCountedDB returns an outbox on a Store whose NOTIFYs are counted.
func newCountedDB(t *testing.T) (*outboxDB, *notifications) {
	db := newOutboxDB(t, testdb.Postgres, 4)
	counter := &notifications{}
	cfg := db.pool.Config()
	cfg.ConnConfig.Tracer = counter
	pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	db.store = newStore(t, pgxstore.Config{Pool: pool})
	return db, counter
}

// Many commits cause few NOTIFYs. These name only the shards of the messages, none is sent in a transaction with
// messages, and the last commit is always notified. No goroutine remains.
func TestOutboxNotifiesSeldomAndOutside(t *testing.T) {
	db, counter := newCountedDB(t)
	listener, err := pgx.Connect(t.Context(), db.dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close(t.Context())
	channel := db.strings(t, `SELECT 'txonce_outbox_' || relnamespace FROM pg_class WHERE oid = 'txonce_shards'::regclass`)[0]
	for _, statement := range []string{dialect.NewPostgresOutboxWrite("").Hear, `LISTEN ` + channel} {
		if _, err := listener.Exec(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	ignored := goleak.IgnoreCurrent()

	const writers, commits = 4, 100
	first := message("a")
	shard := strconv.Itoa(driver.Shard(&first, 64))
	start := time.Now()
	var wg sync.WaitGroup
	for range writers {
		wg.Go(func() {
			for range commits {
				if err := db.inTx(t.Context(), func(tx pgx.Tx) error {
					return db.store.Enqueue(t.Context(), tx, message("a"))
				}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	most := int(time.Since(start)/(5*time.Millisecond)) + 2
	leaktest.None(t, ignored) // this waits for the last NOTIFY
	db.exec(t, `SELECT pg_notify($1, 'end')`, channel)
	received := 0
	for {
		n, err := listener.WaitForNotification(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if n.Payload == "end" {
			break
		}
		if n.Payload != "" && n.Payload != shard { // the first commit does not know its shard yet
			t.Errorf("payload %q, want shard %s", n.Payload, shard)
		}
		received++
	}
	sent, within := counter.counts()
	if received == 0 || received > most || received != sent {
		t.Errorf("%d commits: %d NOTIFYs sent, %d received; want at least 1 and at most %d", writers*commits, sent,
			received, most)
	}
	if within > 0 {
		t.Errorf("%d NOTIFYs within a transaction, want none", within)
	}
	t.Logf("%d commits in %v: %d NOTIFYs", writers*commits, time.Since(start), received)
}

// While a session in this process holds all shards, no NOTIFY is sent. NOTIFYs resume when it no longer holds all.
func TestOutboxNotifiesNobodyWhoHoldsNothing(t *testing.T) {
	db, counter := newCountedDB(t)
	relay := newStore(t, pgxstore.Config{Pool: db.pool})
	wake, stop := pgxstore.Listen(t.Context(), relay)
	defer stop()
	awaitWake(t, wake)
	for _, tt := range []struct {
		name  string
		until time.Time
		want  bool
	}{
		{"holds all", time.Now().Add(time.Hour), false},
		{"its hold ran out", time.Now().Add(-time.Second), true},
		{"holds all again", time.Now().Add(time.Hour), false},
		{"holds less", time.Time{}, true},
	} {
		before, _ := counter.counts()
		ignored := goleak.IgnoreCurrent()
		pgxstore.HoldAllUntil(db.store, tt.until)
		if err := db.inTx(t.Context(), func(tx pgx.Tx) error { return db.store.Enqueue(t.Context(), tx, message("a")) }); err != nil {
			t.Fatal(err)
		}
		leaktest.None(t, ignored) // this waits for a NOTIFY that is being sent
		sent, _ := counter.counts()
		if got := sent > before; got != tt.want {
			t.Errorf("%s: another process was notified %v, want %v", tt.name, got, tt.want)
		}
		if tt.want {
			awaitWake(t, wake)
		}
	}
}
