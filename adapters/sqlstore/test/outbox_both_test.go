package sqlstore_test

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/txonce/txonce/adapters/sqlstore"
	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/dedup/deduptest"
	"github.com/txonce/txonce/internal/dialect"
	"github.com/txonce/txonce/internal/test/testdb"
	"github.com/txonce/txonce/outbox"
	"github.com/txonce/txonce/outbox/driver"
)

// outboxes runs a test on each database.
func outboxes(t *testing.T, test func(t *testing.T, n *node)) {
	t.Parallel() // these tests mostly wait
	t.Run("SQLite", func(t *testing.T) { test(t, openSQLite(t).outbox(t)) })
	t.Run("PostgreSQL", func(t *testing.T) {
		d := openPostgres(t, testdb.Postgres(t))
		test(t, d.open(t, d.dsn, deduptest.Options{}))
	})
	t.Run("MySQL", func(t *testing.T) {
		d := openMySQL(t)
		test(t, d.open(t, d.dsn, deduptest.Options{}))
	})
}

func woken(s session, within time.Duration) bool {
	select {
	case <-s.Session.(driver.Waker).Wake():
		return true
	case <-time.After(within):
		return false
	}
}

func TestOutboxWakesRelaysOfTheStore(t *testing.T) {
	outboxes(t, func(t *testing.T, n *node) {
		one, two := open(t, n, time.Minute), open(t, n, time.Minute)
		enqueue(t, n, messages("a", 1, 1)...)
		for _, s := range []session{one, two} {
			if !woken(s, time.Minute) {
				t.Fatal("not woken by a commit of InTx")
			}
		}
		quiet := func(why string) {
			t.Helper()
			if woken(one, 20*time.Millisecond) {
				t.Fatalf("woken %s", why)
			}
		}
		enqueue(t, n) // no messages
		quiet("by a transaction that has enqueued nothing")
		undo := errors.New("undo")
		err := n.InTx(t.Context(), nil, func(tx *sql.Tx, _ []dedup.Claim) error {
			if err := n.Enqueue(t.Context(), tx, messages("b", 1, 1)...); err != nil {
				return err
			}
			return undo
		})
		if !errors.Is(err, undo) {
			t.Fatal(err)
		}
		quiet("by a transaction that was rolled back")
		err = inTx(t.Context(), n.db, nil, func(tx *sql.Tx) error { return n.Enqueue(t.Context(), tx, messages("c", 1, 1)...) })
		if err != nil {
			t.Fatal(err)
		}
		quiet("by a transaction that nobody watches")
		if n.Wake(t.Context()); !woken(one, time.Minute) || !woken(two, time.Minute) {
			t.Fatal("not woken by Wake")
		}
		if err := two.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		if n.Wake(t.Context()); woken(two, 20*time.Millisecond) {
			t.Fatal("woken after Close")
		}
	})
}

// A session that moves delayed messages into the outbox wakes the others, which may hold their shards.
func TestOutboxWakesForDelayedMessages(t *testing.T) {
	outboxes(t, func(t *testing.T, n *node) {
		one, two := open(t, n, time.Hour), open(t, n, time.Hour)
		renew(t, one)
		enqueue(t, n, outbox.Message{ID: "later", Topic: "t", NotBefore: time.Now().Add(time.Hour)})
		if !woken(two, time.Minute) {
			t.Fatal("not woken by a commit of InTx")
		}
		due := `UPDATE outbox_delayed SET not_before = not_before - interval '2 hours'`
		if !strings.HasSuffix(t.Name(), "PostgreSQL") {
			due = `UPDATE outbox_delayed SET not_before = not_before - 7200000000`
		}
		exec(t, n.db, due)
		for began := time.Now(); len(lease(t, one)) == 0; <-time.After(10 * time.Millisecond) {
			if time.Since(began) > time.Minute {
				t.Fatal("a message that is due was not leased")
			}
		}
		if !woken(two, time.Minute) {
			t.Error("not woken for a message that is due")
		}
	})
}

// The database's clock decides when a hold expires, even if a process's own clock is wrong.
func TestOutboxLeaseEndsByTheDatabasesClock(t *testing.T) {
	outboxes(t, func(t *testing.T, n *node) {
		enqueue(t, n, messages("m", 10, 10)...)
		s := open(t, n, time.Hour)
		hold := renew(t, s)
		msgs := lease(t, s)
		if time.Until(hold.Until) < 59*time.Minute || len(msgs) != 10 {
			t.Fatalf("%+v, %d leased", hold, len(msgs))
		}
		age := `UPDATE txonce_relays SET until = until - interval '1 hour'`
		if !strings.HasSuffix(t.Name(), "PostgreSQL") {
			age = `UPDATE txonce_relays SET until = until - 3600000000 - 1000`
		}
		exec(t, n.db, age)
		leaseFails := func() {
			t.Helper()
			if _, err := s.tryLease(t.Context(), driver.Want{Limit: 1}); !errors.Is(err, driver.ErrLeaseLost) {
				t.Errorf("Lease after the hold expired: %v", err)
			}
		}
		if !strings.HasSuffix(t.Name(), "PostgreSQL") {
			// there a Lease asks its own clock, and the database at each Renew
			leaseFails()
		}
		if _, err := s.tryRenew(t.Context()); !errors.Is(err, driver.ErrLeaseLost) {
			t.Errorf("Renew after the hold expired: %v", err)
		}
		leaseFails()
		other := open(t, n, time.Hour)
		if hold := renew(t, other); hold.Shards != 64 || hold.Relays != 1 {
			t.Errorf("the successor: %+v", hold)
		}
		if again := lease(t, other); len(again) != 10 || again[0].Token <= msgs[0].Token {
			t.Errorf("%d leased by the successor", len(again))
		}
		for _, v := range []driver.Verdict{driver.Returned, driver.Sent} {
			if err := s.trySettle(t.Context(), outcomes(v, msgs...)); !errors.Is(err, driver.ErrLeaseLost) {
				t.Errorf("a late Settle: %v", err)
			}
		}
	})
}

func TestOutboxMissingTables(t *testing.T) {
	outboxes(t, func(t *testing.T, n *node) {
		exec(t, n.db, `DROP TABLE outbox_messages`)
		if strings.HasSuffix(t.Name(), "SQLite") {
			exec(t, n.db, `DROP TABLE outbox_seq`)
		}
		check := func(what string, err error) {
			t.Helper()
			if !errors.Is(err, dedup.ErrSchema) || !strings.Contains(err.Error(), "migrations.Apply") ||
				!n.Retryable(err) {
				t.Errorf("%s: %v, retryable %v", what, err, n.Retryable(err))
			}
		}
		check("Enqueue", n.InTx(t.Context(), nil, func(tx *sql.Tx, _ []dedup.Claim) error {
			return n.Enqueue(t.Context(), tx, messages("m", 1, 1)...)
		}))
		_, err := n.Outbox().Stats(t.Context())
		check("Stats", err)
		s := open(t, n, time.Minute) // the schema version says that all tables exist
		renew(t, s)
		_, err = s.Lease(t.Context(), driver.Want{Limit: 1})
		check("Lease", err)
		exec(t, n.db, `DELETE FROM txonce_schema WHERE version >= 2`)
		_, err = n.Open(t.Context(), driver.SessionOptions{TTL: time.Minute})
		check("Open", err)
	})
}

func TestOutboxBadConfig(t *testing.T) {
	d := openSQLite(t)
	_, err := sqlstore.New(sqlstore.Config{DB: d.db, Dialect: sqlstore.SQLite, Outbox: sqlstore.OutboxConfig{KeepSent: -1}})
	if err == nil || !strings.Contains(err.Error(), "Outbox.KeepSent") {
		t.Errorf("KeepSent -1: %v", err)
	}
	n := d.outbox(t)
	if _, err := n.Open(t.Context(), driver.SessionOptions{}); err == nil || !strings.Contains(err.Error(), "TTL") {
		t.Errorf("no TTL: %v", err)
	}
	s := open(t, n, time.Minute)
	if _, err := s.Lease(t.Context(), driver.Want{}); err == nil || !strings.Contains(err.Error(), "Limit") {
		t.Errorf("no Limit: %v", err)
	}
}

// Stats counts few messages exactly, and estimates many.
func TestOutboxStatsOfManyPending(t *testing.T) {
	outboxes(t, func(t *testing.T, n *node) {
		enqueue(t, n, messages("few", 200, 200)...)
		st, err := n.Outbox().Stats(t.Context())
		if err != nil || st.Estimated || st.Pending != 200 || st.Topics["t"].Pending != 200 {
			t.Fatalf("%+v, %v", st, err)
		}
		enqueue(t, n, messages("many", 6000, 4)...) // in four shards
		st, err = n.Outbox().Stats(t.Context())
		if err != nil || !st.Estimated || st.Pending < 5000 || st.Pending > 7500 ||
			st.Topics["t"].Pending != st.Pending {
			t.Fatalf("Stats of 6200 messages: %+v, %v", st, err)
		}
		if st.PendingAge <= 0 || st.PendingAge > time.Minute {
			t.Errorf("the first due has been due for %v", st.PendingAge)
		}
	})
}

// NOTIFY tells a relay of another process about commits. It is not sent in the handler's transaction.
func TestOutboxPostgresNotifies(t *testing.T) {
	d := openPostgres(t, testdb.Postgres(t))
	n := d.open(t, d.dsn, deduptest.Options{})
	conn, err := pgx.Connect(t.Context(), d.dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.WithoutCancel(t.Context()))
	var channel string
	err = conn.QueryRow(t.Context(), `SELECT 'txonce_outbox_' || relnamespace FROM pg_class WHERE oid = 'txonce_shards'::regclass`).Scan(&channel)
	if err != nil {
		t.Fatal(err)
	}
	listen := func() {
		t.Helper()
		for _, statement := range []string{dialect.NewPostgresOutboxWrite("").Hear, `LISTEN ` + channel} {
			if _, err := conn.Exec(t.Context(), statement); err != nil {
				t.Fatal(err)
			}
		}
	}
	listen()
	arrives := func(within time.Duration) (pid uint32, yes bool) {
		ctx, cancel := context.WithTimeout(t.Context(), within)
		defer cancel()
		got, err := conn.WaitForNotification(ctx)
		if err != nil {
			return 0, false
		}
		return got.PID, true
	}
	enqueue(t, n, messages("a", 1, 1)...)
	if _, yes := arrives(time.Minute); !yes {
		t.Fatal("no NOTIFY after a commit of InTx")
	}
	err = inTx(t.Context(), n.db, nil, func(tx *sql.Tx) error { return n.Enqueue(t.Context(), tx, messages("b", 1, 1)...) })
	if err != nil {
		t.Fatal(err)
	}
	if _, yes := arrives(100 * time.Millisecond); yes {
		t.Fatal("a transaction that enqueues notifies by itself")
	}
	if conn.IsClosed() { // a wait that timed out has closed the connection
		if conn, err = pgx.Connect(t.Context(), d.dsn); err != nil {
			t.Fatal(err)
		}
		listen()
	}
	n.Wake(t.Context())
	if _, yes := arrives(time.Minute); !yes {
		t.Fatal("no NOTIFY after Wake")
	}
}

// Drivers for poolers may send parameters as text, prepared or not. All operations on a message must work with them.
func TestOutboxPostgresWithoutPreparedStatements(t *testing.T) {
	for _, mode := range []string{"exec", "simple_protocol", "describe_exec", "cache_describe"} {
		t.Run(mode, func(t *testing.T) {
			d := openPostgres(t, testdb.Postgres(t))
			n := d.open(t, d.dsn+"&default_query_exec_mode="+mode, deduptest.Options{})
			wholeLife(t, n)
		})
	}
}

// wholeLife takes messages with unusual contents through all operations.
func wholeLife(t *testing.T, n *node) {
	t.Helper()
	odd := outbox.Message{
		ID: `a"b\c{},NULL' $1 ünï`, Topic: `t"\`, OrderingKey: "\x00\xff\\\"", Payload: []byte{0, 0xff, '\\', '"'},
		Headers: map[string]string{`na"me\`: "\x00\xff", "plain": `"`},
	}
	second := odd
	second.ID, second.Headers = "2", nil
	enqueue(t, n, odd)                                         // one message
	enqueue(t, n, second, outbox.Message{ID: "3", Topic: "t"}) // two messages in one call
	later := outbox.Message{ID: "4", Topic: "t", NotBefore: time.Now().Add(time.Hour)}
	enqueue(t, n, later, outbox.Message{ID: "5", Topic: "t"}) // delayed messages
	if err := inTx(t.Context(), n.db, nil, func(tx *sql.Tx) error { return n.LockOrderingKey(t.Context(), tx, odd.OrderingKey) }); err != nil {
		t.Fatal(err)
	}
	s := open(t, n, time.Minute)
	renew(t, s)
	msgs := lease(t, s)
	if len(msgs) != 4 {
		t.Fatalf("%d leased", len(msgs))
	}
	got := msgs[0]
	if got.ID != odd.ID || got.Topic != odd.Topic || got.OrderingKey != odd.OrderingKey ||
		string(got.Payload) != string(odd.Payload) ||
		got.Headers[`na"me\`] != "\x00\xff" || got.Headers["plain"] != `"` {
		t.Errorf("%+v arrived for %+v", got, odd)
	}
	all := outcomes(driver.Parked, msgs[0])
	all = append(all, outcomes(driver.Returned, msgs[1])...)
	all = append(all, outcomes(driver.Deferred, msgs[2])...)
	all = append(all, outcomes(driver.Sent, msgs[3])...)
	settle(t, s, all)
	if err := s.tryTidy(t.Context()); err != nil {
		t.Fatal(err)
	}
	parked, err := n.Outbox().Parked(t.Context(), outbox.ParkedFilter{OrderingKey: odd.OrderingKey})
	if err != nil || len(parked) != 2 || !parked[1].Waiting || parked[1].Behind != parked[0].Seq {
		t.Fatalf("%+v, %v", parked, err)
	}
	if got, err := n.Outbox().Unpark(t.Context(), parked[0].Seq); err != nil || got != 1 {
		t.Fatalf("%d unparked, %v", got, err)
	}
	if st, err := n.Outbox().Stats(t.Context()); err != nil || st.Pending != 3 || st.Delayed != 1 || st.Parked != 0 ||
		st.Waiting != 0 {
		t.Errorf("%+v, %v", st, err)
	}
	settle(t, s, outcomes(driver.Sent, lease(t, s)...))
}

// LockOrderingKey takes the same lock as adapters/pgxstore, so that handlers on both stores exclude each other.
func TestOutboxPostgresSerializeLock(t *testing.T) {
	d := openPostgres(t, testdb.Postgres(t))
	n := d.open(t, d.dsn, deduptest.Options{})
	const lock = int64(-8960902537064487842)
	err := inTx(t.Context(), n.db, nil, func(tx *sql.Tx) error {
		if err := n.LockOrderingKey(t.Context(), tx, "k"); err != nil {
			return err
		}
		var held bool
		err := tx.QueryRow(`SELECT EXISTS (SELECT FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()
	AND (classid::bigint << 32 | objid::bigint) = $1)`, lock).Scan(&held)
		if !held {
			t.Errorf("no advisory lock %d", lock)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// A message behind a parked one is never leased, even before Maintain has parked it too.
func TestOutboxFollowerIsNotLeasedBeforeTidy(t *testing.T) {
	outboxes(t, func(t *testing.T, n *node) {
		s := open(t, n, time.Minute)
		renew(t, s)
		enqueue(t, n, messages("m", 1, 1)...)
		settle(t, s, outcomes(driver.Parked, lease(t, s)...))
		follower := messages("follower", 1, 1)
		enqueue(t, n, follower...)
		if msgs := lease(t, s); len(msgs) != 0 {
			t.Fatalf("%s is leased, behind a parked message of its key", msgs[0].ID)
		}
		parked, err := n.Outbox().Parked(t.Context(), outbox.ParkedFilter{})
		if err != nil || len(parked) != 1 || parked[0].Error != "refused" {
			t.Fatalf("%+v, %v", parked, err)
		}
		if count, err := n.Outbox().Discard(t.Context(), parked[0].Seq); err != nil || count != 1 {
			t.Fatalf("%d discarded, %v", count, err)
		}
		if msgs := lease(t, s); len(msgs) != 1 || msgs[0].ID != follower[0].ID {
			t.Fatalf("%+v is leased after the one before it was discarded", msgs)
		}
	})
}
