package pgxstore_test

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/txonce/txonce/adapters/pgxstore"
	"github.com/txonce/txonce/internal/test/testdb"
	"github.com/txonce/txonce/outbox/driver"
)

// polling is a session of an outbox whose watermark is above its first messages.
type polling struct {
	*outboxDB
	driver.Session
}

// newPolling leases and settles n messages of one key, and returns when the session's watermark is above them.
func newPolling(t *testing.T, db *outboxDB, n int) *polling {
	t.Helper()
	l := &polling{outboxDB: db}
	err := again(db.store, func() (err error) {
		l.Session, err = db.store.Open(t.Context(), driver.SessionOptions{Name: t.Name(), TTL: time.Hour})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), time.Minute)
		defer cancel()
		_ = l.Close(ctx)
	})
	l.renew(t)
	l.passes(t, "first", n)
	return l
}

func (l *polling) renew(t *testing.T) {
	t.Helper()
	err := again(l.store, func() error {
		_, err := l.Renew(t.Context())
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// enqueue commits n messages and returns their IDs.
func (l *polling) enqueue(t *testing.T, prefix string, n int) (ids []string) {
	t.Helper()
	for i := range n {
		ids = append(ids, fmt.Sprintf("%s-%d", prefix, i))
	}
	err := again(l.store, func() error {
		return pgx.BeginFunc(t.Context(), l.pool, func(tx pgx.Tx) error { return l.store.Enqueue(t.Context(), tx, messages(ids...)...) })
	})
	if err != nil {
		t.Fatal(err)
	}
	return ids
}

// passes enqueues and settles n messages, and polls until the watermark is above them.
func (l *polling) passes(t *testing.T, prefix string, n int) {
	t.Helper()
	ids := l.enqueue(t, prefix, n)
	l.finds(t, ids, func() {})
	var last int64
	if err := l.pool.QueryRow(t.Context(), `SELECT last_value FROM outbox_seq`).Scan(&last); err != nil {
		t.Fatal(err)
	}
	for began := time.Now(); pgxstore.LowWatermark(l.Session) <= last; pause(5 * time.Millisecond) {
		if l.lease(t); time.Since(began) > time.Minute {
			t.Fatalf("the watermark is %d, want more than %d", pgxstore.LowWatermark(l.Session), last)
		}
	}
}

func (l *polling) lease(t *testing.T) (leased []driver.Leased) {
	t.Helper()
	err := again(l.store, func() (err error) {
		leased, err = l.Lease(t.Context(), driver.Want{Limit: 1000})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return leased
}

// finds leases and settles messages until all of ids were found. It calls meanwhile between polls.
func (l *polling) finds(t *testing.T, ids []string, meanwhile func()) {
	t.Helper()
	var got []string
	for began := time.Now(); len(got) < len(ids); pause(5 * time.Millisecond) {
		leased := l.lease(t)
		var outcomes []driver.Outcome
		for _, m := range leased {
			outcomes = append(outcomes, driver.Outcome{Leased: m, Verdict: driver.Sent})
		}
		if err := again(l.store, func() error { return l.Settle(t.Context(), outcomes) }); err != nil {
			t.Fatal(err)
		}
		got = append(got, leasedIDs(leased)...)
		if meanwhile(); time.Since(began) > 30*time.Second {
			t.Fatalf("found %d of %d messages; pending: %v", len(got), len(ids), l.ids(t))
		}
	}
	slices.Sort(got)
	slices.Sort(ids)
	if !slices.Equal(got, ids) {
		t.Errorf("leased %v, want %v", got, ids)
	}
}

// An asynchronous failover sets the sequence back. New messages get numbers below the watermark, and must be found.
func TestOutboxLeaseAfterTheSequenceHasSteppedBack(t *testing.T) {
	servers(t, func(t *testing.T, server func(testing.TB) string) {
		l := newPolling(t, newOutboxDB(t, server, 6), 50)
		l.exec(t, `SELECT setval('outbox_seq', 10)`)
		l.finds(t, l.enqueue(t, "later", 3), func() {})
	})
}

// The sequence may have passed the watermark again before the next poll. Then only the messages in the table show that
// it was set back.
func TestOutboxTidyFindsWhatIsBelowTheWatermark(t *testing.T) {
	servers(t, func(t *testing.T, server func(testing.TB) string) {
		l := newPolling(t, newOutboxDB(t, server, 6), 50)
		l.exec(t, `SELECT setval('outbox_seq', 10)`)
		l.finds(t, l.enqueue(t, "later", 60), func() {
			if err := again(l.store, func() error { return l.Session.(driver.Maintainer).Maintain(t.Context()) }); err != nil {
				t.Fatal(err)
			}
		})
		l.passes(t, "last", 3) // the watermarks rise again
	})
}

// A primary crashes, and a standby without its last commits is promoted. The relay's session continues on that standby.
func TestOutboxLeaseAfterAFailover(t *testing.T) {
	if reason := testdb.NoOwnPostgres(); reason != "" {
		t.Logf("does not apply: %s", reason)
		return
	}
	primary := testdb.StartPostgres(t, "wal_keep_size=64MB")
	standby := primary.StartStandby(t)
	db := newOutboxDBAt(t, eitherOf(t, primary, standby), 4)
	l := newPolling(t, db, 50)
	behind := connectTo(t, standby.DSN)
	awaitStandby(t, connectTo(t, primary.DSN), behind)
	for _, sql := range []string{`ALTER SYSTEM SET primary_conninfo = ''`, `SELECT pg_reload_conf()`} {
		if _, err := behind.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	await(t, "the standby no longer hears of the primary", func() (cut bool) {
		err := behind.QueryRow(t.Context(), `SELECT NOT EXISTS (SELECT FROM pg_stat_wal_receiver)`).Scan(&cut)
		return err == nil && cut
	})
	l.passes(t, "lost", 100)
	primary.Kill()
	if _, err := connectTo(t, standby.DSN).Exec(t.Context(), `SELECT pg_promote()`); err != nil {
		t.Fatal(err)
	}
	l.pool.Reset() // its connections are closed by the crash
	// More messages than were lost, so that the sequence is above the watermark again at the next poll.
	l.finds(t, l.enqueue(t, "later", 200), func() {})
}

// eitherOf connects to that one of two servers that accepts writes.
func eitherOf(t *testing.T, a, b *testdb.OwnPostgres) string {
	t.Helper()
	first, err := url.Parse(a.DSN)
	if err != nil {
		t.Fatal(err)
	}
	first.Host += fmt.Sprintf(",127.0.0.1:%d", b.Port)
	return first.String() + "&target_session_attrs=read-write"
}

func connectTo(t *testing.T, dsn string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.WithoutCancel(t.Context())) })
	return conn
}

// awaitStandby returns when the standby has everything that the primary has committed.
func awaitStandby(t *testing.T, primary, standby *pgx.Conn) {
	t.Helper()
	var end string
	if err := primary.QueryRow(t.Context(), `SELECT pg_current_wal_lsn()::text`).Scan(&end); err != nil {
		t.Fatal(err)
	}
	await(t, "the standby has what is committed", func() (there bool) {
		err := standby.QueryRow(t.Context(), `SELECT coalesce(pg_last_wal_replay_lsn() >= $1::text::pg_lsn, false)`,
			end).Scan(&there)
		return err == nil && there
	})
}

func await(t *testing.T, what string, done func() bool) {
	t.Helper()
	for began := time.Now(); !done(); pause(10 * time.Millisecond) {
		if time.Since(began) > 2*time.Minute {
			t.Fatalf("did not happen: %s", what)
		}
	}
}

// After a failover to a standby that lacked commits, another message may have the seq of a leased one. It is not
// settled in its place.
func TestOutboxSettlesNoOtherMessage(t *testing.T) {
	servers(t, func(t *testing.T, server func(testing.TB) string) {
		d := newHolding(t, server)
		d.enqueue(t, "sent", "deferred", "parked")
		leased := d.lease(t)
		d.exec(t, `UPDATE outbox_messages SET id = 'new ' || id`)
		d.settle(t, outcomesLike(leased)...)
		d.want(t, "new sent", "new deferred", "new parked")
		if got := leasedIDs(d.lease(t)); len(got) != 3 {
			t.Errorf("leased %v, want three messages, none of them deferred", got)
		}
	})
}

// outcomesLike gives the messages the verdicts that their IDs name.
func outcomesLike(leased []driver.Leased) (all []driver.Outcome) {
	for _, m := range leased {
		verdict := map[string]driver.Verdict{
			"sent": driver.Sent, "deferred": driver.Deferred,
			"parked": driver.Parked,
		}[m.ID]
		all = append(all, driver.Outcome{Leased: m, Verdict: verdict, Err: errors.New("refused"), Delay: time.Hour})
	}
	return all
}
