package pgxstore_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/txonce/txonce/adapters/pgxstore"
	"github.com/txonce/txonce/internal/test/testdb"
	"github.com/txonce/txonce/outbox/driver"
)

// holding is an outbox and a session that holds all its shards.
type holding struct {
	*outboxDB
	driver.Session
}

func newHolding(t *testing.T, server func(testing.TB) string) *holding {
	t.Helper()
	return newHoldingOn(t, newOutboxDB(t, server, 8))
}

func newHoldingOn(t *testing.T, db *outboxDB) *holding {
	t.Helper()
	db.store = newStore(t, pgxstore.Config{Pool: db.pool, AllowAsyncCommit: true})
	s, err := db.store.Open(t.Context(), driver.SessionOptions{Name: t.Name(), TTL: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close(context.WithoutCancel(t.Context())) })
	err = again(db.store, func() error {
		_, err := s.Renew(t.Context())
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return &holding{db, s}
}

func (d *holding) enqueue(tb testing.TB, ids ...string) {
	tb.Helper()
	err := again(d.store, func() error {
		return pgx.BeginFunc(tb.Context(), d.pool, func(tx pgx.Tx) error {
			return d.store.Enqueue(tb.Context(), tx, messages(ids...)...)
		})
	})
	if err != nil {
		tb.Fatal(err)
	}
}

func (d *holding) begin(tb testing.TB, ids ...string) pgx.Tx {
	tb.Helper()
	tx, err := d.pool.Begin(tb.Context())
	if err != nil {
		tb.Fatal(err)
	}
	if err := d.store.Enqueue(tb.Context(), tx, messages(ids...)...); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = tx.Rollback(context.WithoutCancel(tb.Context())) })
	return tx
}

func (d *holding) maintain(tb testing.TB) {
	tb.Helper()
	if err := again(d.store, func() error { return d.Session.(driver.Maintainer).Maintain(tb.Context()) }); err != nil {
		tb.Fatal(err)
	}
}

// until calls Maintain until done reports true.
func (d *holding) until(tb testing.TB, what string, done func() bool) {
	tb.Helper()
	for began := time.Now(); !done(); {
		if d.maintain(tb); time.Since(began) > 2*time.Minute {
			tb.Fatalf("did not happen: %s", what)
		}
	}
}

func (d *holding) lease(tb testing.TB) []driver.Leased {
	tb.Helper()
	var leased []driver.Leased
	err := again(d.store, func() (err error) {
		leased, err = d.Lease(tb.Context(), driver.Want{Limit: 1000})
		return err
	})
	if err != nil {
		tb.Fatal(err)
	}
	return leased
}

func settle(tb testing.TB, d *holding, v driver.Verdict, leased ...driver.Leased) {
	tb.Helper()
	outcomes := make([]driver.Outcome, len(leased))
	for i, l := range leased {
		outcomes[i] = driver.Outcome{Leased: l, Verdict: v}
		if v != driver.Returned { // a Delay would hold back its key
			outcomes[i].Err, outcomes[i].Delay = errors.New("refused"), time.Hour
		}
	}
	d.settle(tb, outcomes...)
}

func (d *holding) settle(tb testing.TB, outcomes ...driver.Outcome) {
	tb.Helper()
	if err := again(d.store, func() error { return d.Settle(tb.Context(), outcomes) }); err != nil {
		tb.Fatal(err)
	}
}

func leasedIDs(leased []driver.Leased) (ids []string) {
	for _, l := range leased {
		ids = append(ids, l.ID)
	}
	return ids
}

// A Lease starts behind deleted rows, but never behind a smaller seq that may still be committed.
func TestOutboxLeaseFindsLateCommitsBehindWhatIsGone(t *testing.T) {
	servers(t, func(t *testing.T, server func(testing.TB) string) {
		d := newHolding(t, server)
		tx := d.begin(t, "late")
		for i := range 8 {
			d.enqueue(t, fmt.Sprint(i)) // in the same shard
			settle(t, d, driver.Sent, d.lease(t)...)
			d.maintain(t) // moves the watermark
		}
		if err := tx.Commit(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := leasedIDs(d.lease(t)); !slices.Equal(got, []string{"late"}) {
			t.Errorf("leased %v, want the late commit", got)
		}
	})
}

// An unparked message has an old seq. It is found at once, before later messages of its key.
func TestOutboxLeaseFindsWhatComesBack(t *testing.T) {
	servers(t, func(t *testing.T, server func(testing.TB) string) {
		d := newHolding(t, server)
		d.enqueue(t, "head", "follower")
		leased := d.lease(t)
		d.settle(t, driver.Outcome{Leased: leased[0], Verdict: driver.Parked, Err: errors.New("refused")},
			driver.Outcome{Leased: leased[1], Verdict: driver.Returned})
		for range 6 {
			if got := d.lease(t); len(got) > 0 {
				t.Fatalf("leased %v behind a parked message", leasedIDs(got))
			}
			d.maintain(t) // moves the watermark
		}
		if err := unpark(t.Context(), d.store, leased[0].Seq); err != nil {
			t.Fatal(err)
		}
		d.enqueue(t, "later")
		if got := leasedIDs(d.lease(t)); !slices.Equal(got, []string{"head", "follower", "later"}) {
			t.Errorf("leased %v, want the old order", got)
		}
	})
}

// With statistics of an empty table, PostgreSQL would start a join with that table.
func TestOutboxSettlesAtOnceThoughStatisticsAreOld(t *testing.T) {
	servers(t, func(t *testing.T, server func(testing.TB) string) {
		dsn := testdb.Schema(t, server(t)) + "&synchronous_commit=off" // the test does not measure the disk
		d := newHoldingOn(t, newOutboxDBAt(t, dsn, 8))
		fill := `INSERT INTO outbox_messages (shard, id, topic, key, payload) SELECT i % 64, i::text, 'events', convert_to(i::text, 'UTF8'), '' FROM generate_series(1, 40000) AS i`
		d.exec(t, fill)
		// this transaction keeps the dead rows
		open, err := d.pool.BeginTx(t.Context(), pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
		if err != nil {
			t.Fatal(err)
		}
		defer open.Rollback(t.Context())
		if _, err := open.Exec(t.Context(), `SELECT FROM effects`); err != nil {
			t.Fatal(err)
		}
		d.exec(t, `DELETE FROM outbox_messages`)
		d.exec(t, `ANALYZE outbox_messages`)
		d.exec(t, fill)
		fastest := time.Hour // a suspended machine slows down some of the measurements
		for range 10 {
			leased := d.lease(t)
			began := time.Now()
			settle(t, d, driver.Sent, leased...)
			fastest = min(fastest, time.Since(began))
		}
		if fastest > time.Second {
			t.Errorf("settling 1000 messages took %v", fastest)
		}
	})
}

func pause(d time.Duration) { <-time.After(d) }
