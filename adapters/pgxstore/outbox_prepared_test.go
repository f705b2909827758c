package pgxstore_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/txonce/txonce/internal/test/testdb"
	"github.com/txonce/txonce/outbox/driver"
)

// The watermark waits for a transaction that is prepared for two-phase commit, also after its session has ended.
func TestOutboxLeaseFindsWhatWasPrepared(t *testing.T) {
	t.Parallel()
	if reason := testdb.NoOwnPostgres(); reason != "" {
		t.Logf("does not apply: %s", reason)
		return
	}
	db := newOutboxDBAt(t, testdb.StartPostgres(t, "max_prepared_transactions=1").DSN, 4)
	l := newPolling(t, db, 5)
	published := 0
	publish := func() { // in the same shard
		published++
		l.finds(t, l.enqueue(t, fmt.Sprint("other ", published), 1), func() {
			if err := again(l.store, func() error { return l.Session.(driver.Maintainer).Maintain(t.Context()) }); err != nil {
				t.Fatal(err)
			}
		})
	}
	conn, err := pgx.Connect(t.Context(), db.dsn)
	if err != nil {
		t.Fatal(err)
	}
	tx, err := conn.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := l.store.Enqueue(t.Context(), tx, message("prepared")); err != nil {
		t.Fatal(err)
	}
	publish() // the relay has seen the transaction before it is prepared
	if _, err := conn.Exec(t.Context(), `PREPARE TRANSACTION 'two-phase'`); err != nil {
		t.Fatal(err)
	}
	if err := conn.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	for range 4 {
		publish()
	}
	db.exec(t, `COMMIT PREPARED 'two-phase'`)
	if got := leasedIDs(l.lease(t)); !slices.Equal(got, []string{"prepared"}) {
		t.Errorf("leased %v, want the message of the prepared transaction", got)
	}
}
