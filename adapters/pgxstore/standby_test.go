package pgxstore_test

import (
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/txonce/txonce/adapters/pgxstore"
	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/internal/test/testdb"
	"github.com/txonce/txonce/outbox"
)

// A synchronous standby is configured while the Store runs, and never connects. If the wait of a COMMIT is cancelled,
// the commit exists only on the primary: it must not count as done, and the duplicate that is found next must wait for
// the standby as the COMMIT did.
func TestSynchronousStandbyIsCutOff(t *testing.T) {
	if reason := testdb.NoOwnPostgres(); reason != "" {
		t.Logf("does not apply: %s", reason)
		return
	}
	dsn := testdb.StartPostgres(t).DSN
	db := newOutboxDBAt(t, dsn, 4)
	// A connection whose own commits wait for no standby.
	admin := testPool(t, dsn+"&synchronous_commit=local", 2)
	exec := func(t *testing.T, sql string) {
		t.Helper()
		if _, err := admin.Exec(t.Context(), sql); err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
	}
	await := func(t *testing.T, what, sql string) {
		t.Helper()
		for end := time.Now().Add(2 * time.Minute); ; <-time.After(5 * time.Millisecond) {
			var ok bool
			if err := admin.QueryRow(t.Context(), sql).Scan(&ok); err != nil {
				t.Fatal(err)
			}
			if ok {
				return
			}
			if time.Now().After(end) {
				t.Fatalf("no %s", what)
			}
		}
	}
	const waits = `SELECT count(*) > 0 FROM pg_stat_activity WHERE wait_event = 'SyncRep'`
	standby := func(t *testing.T, name string) {
		t.Helper()
		exec(t, `ALTER SYSTEM SET synchronous_standby_names = '`+name+`'`)
		exec(t, `SELECT pg_reload_conf()`)
		await(t, "reload", `SELECT current_setting('synchronous_standby_names') = '`+name+`'`)
		if name != "" { // COMMITs only wait once the server's checkpointer has read the setting too
			awaitWaitingCommits(t, db.pool, admin)
		}
	}
	s := newStore(t, pgxstore.Config{Pool: db.pool})
	claim := func(s *pgxstore.Store, id string, enqueues bool) (verdict dedup.Verdict, err error) {
		rec := dedup.Record{Key: dedup.Key{Consumer: "billing", ID: id}, Time: time.Now()}
		err = s.InTx(t.Context(), []dedup.Record{rec}, func(tx pgx.Tx, claims []dedup.Claim) error {
			if verdict = claims[0].Verdict; enqueues && verdict == dedup.First {
				return s.Enqueue(t.Context(), tx, outbox.Message{ID: id, Topic: "paid", OrderingKey: id})
			}
			return nil
		})
		return verdict, err
	}
	if _, err := claim(s, "before", false); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name     string
		enqueues bool
		end      time.Duration // the limit for COMMIT; 0: an operator cancels it
		cut      string
	}{
		{"an operator cancels COMMIT", false, 0, `SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE wait_event = 'SyncRep'`},
		{"an operator cancels COMMIT of messages", true, 0, `SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE wait_event = 'SyncRep'`},
		{"an operator terminates the session", false, 0, `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE wait_event = 'SyncRep'`},
		{"COMMIT takes too long", false, 500 * time.Millisecond, ``},
		{"COMMIT of messages takes too long", true, 500 * time.Millisecond, ``},
	} {
		t.Run(tt.name, func(t *testing.T) {
			id := tt.name
			first := newStore(t, pgxstore.Config{Pool: db.pool})
			if _, err := claim(first, "before", false); err != nil { // this registers the window while no COMMIT waits
				t.Fatal(err)
			}
			if tt.end > 0 {
				pgxstore.SetEndWithin(first, tt.end)
			}
			standby(t, "nobody")
			defer standby(t, "")
			done := make(chan error, 1)
			go func() {
				_, err := claim(first, id, tt.enqueues)
				if err == nil || !s.Retryable(err) || errors.Is(err, dedup.ErrInFlight) {
					t.Errorf("InTx = %v, though no standby has the commit; want a retryable error", err)
				}
				done <- err
			}()
			if tt.cut != "" {
				await(t, "COMMIT that waits", waits)
				exec(t, tt.cut)
			}
			t.Log(<-done)
			await(t, "end of the wait", `SELECT count(*) = 0 FROM pg_stat_activity WHERE wait_event = 'SyncRep'`)
			type answer struct {
				verdict dedup.Verdict
				err     error
			}
			again := make(chan answer, 1)
			go func() {
				verdict, err := claim(s, id, tt.enqueues)
				again <- answer{verdict, err}
			}()
			await(t, "duplicate that waits for the standby", waits)
			select {
			case a := <-again:
				t.Fatalf("claimed again: %v, %v; it has not waited for the standby", a.verdict, a.err)
			default:
			}
			standby(t, "")
			if a := <-again; a.err != nil || a.verdict != dedup.Duplicate {
				t.Errorf("claimed again: %v, %v; want a duplicate", a.verdict, a.err)
			}
		})
	}
}

// awaitWaitingCommits returns once COMMITs wait for standbys. It cancels the COMMITs that it sends to find out.
func awaitWaitingCommits(t *testing.T, pool, admin *pgxpool.Pool) {
	t.Helper()
	const cancel = `SELECT count(pg_cancel_backend(pid)) > 0 FROM pg_stat_activity WHERE wait_event = 'SyncRep'`
	for end := time.Now().Add(2 * time.Minute); time.Now().Before(end); {
		done := make(chan error, 1)
		go func() {
			_, err := pool.Exec(t.Context(), `SELECT lo_unlink(lo_create(0))`)
			done <- err
		}()
		waited := false
		for ended := false; !ended; {
			select {
			case err := <-done:
				if err != nil {
					t.Fatal(err)
				}
				ended = true
			case <-time.After(time.Millisecond):
				var cancelled bool
				if err := admin.QueryRow(t.Context(), cancel).Scan(&cancelled); err != nil {
					t.Fatal(err)
				}
				waited = waited || cancelled
			}
		}
		if waited {
			return
		}
	}
	t.Fatal("no COMMIT waits for the standby")
}
