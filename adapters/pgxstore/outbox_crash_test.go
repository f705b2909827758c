//go:build unix

package pgxstore_test

import (
	"slices"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/txonce/txonce/internal/test/testdb"
)

// A process of the server is killed, and the server recovers. It may assign numbers again that it had assigned to
// transactions that were open. Then the sequence passes the numbers that the relay remembers, before the relay looks
// again.
func TestOutboxLeaseAfterTheServerHasRecovered(t *testing.T) {
	if reason := testdb.NoOwnPostgres(); reason != "" {
		t.Logf("does not apply: %s", reason)
		return
	}
	db := newOutboxDBAt(t, testdb.StartPostgres(t, "restart_after_crash=on").DSN, 8)
	l := newPolling(t, db, 5)
	d := &holding{db, l.Session}
	d.begin(t, slices.Repeat([]string{"lost"}, 200)...)
	d.maintain(t) // the watermark waits for that transaction
	crash(t, db.dsn)
	db.pool.Reset()

	late := d.begin(t, "late")
	ids := l.enqueue(t, "other", 300)
	for range 2 { // the transactions of before the crash are gone
		d.maintain(t)
		l.finds(t, ids, func() {})
		ids = l.enqueue(t, "more", 1)
	}
	if err := late.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	l.finds(t, append(ids, "late"), func() {}) // no Maintain
}

// crash kills a process of the server, which ends all others too, and returns when the server has recovered.
func crash(t *testing.T, dsn string) {
	t.Helper()
	var pid int
	if err := connectTo(t, dsn).QueryRow(t.Context(), `SELECT pg_backend_pid()`).Scan(&pid); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	await(t, "recovery", func() bool {
		conn, err := pgx.Connect(t.Context(), dsn)
		if err != nil {
			return false
		}
		defer conn.Close(t.Context())
		var ended bool
		err = conn.QueryRow(t.Context(), `SELECT NOT EXISTS (SELECT FROM pg_stat_activity WHERE pid = $1)`,
			pid).Scan(&ended)
		return err == nil && ended
	})
}
