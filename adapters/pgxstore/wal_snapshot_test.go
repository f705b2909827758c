package pgxstore_test

import (
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/txonce/txonce/adapters/pgxstore"
)

// PostgreSQL (15.18 and 18 at least) forgets, while it builds a slot's first snapshot, which tables were created by transactions that
// began and ended in the first part of that. Who then writes to such a table cannot be decoded, and everything behind him
// never comes. A migration beside CreateOutboxSlot suffices.
func TestOutboxWALTablesCreatedBesideTheSlot(t *testing.T) {
	servers(t, func(t *testing.T, server func(testing.TB) string) {
		db := newOutboxDB(t, server, 8)
		created := make(chan *pgxstore.Store, 1)
		w := &walTest{T: t, db: db}
		begin := func() (tx pgx.Tx, xid string) {
			tx, err := db.pool.Begin(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = tx.Rollback(t.Context()) })
			if err := tx.QueryRow(t.Context(), `SELECT pg_current_xact_id()::xid::text`).Scan(&xid); err != nil {
				t.Fatal(err)
			}
			return tx, xid
		}
		end := func(tx pgx.Tx) {
			if err := tx.Commit(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		awaited := func(xid string) {
			w.until("the slot's creation to wait for transaction "+xid, func() (waits bool) {
				err := db.pool.QueryRow(t.Context(), `SELECT EXISTS (SELECT FROM pg_locks
					WHERE locktype = 'transactionid' AND NOT granted AND transactionid::text = $1)`, xid).Scan(&waits)
				if err != nil {
					t.Fatal(err)
				}
				return waits
			})
		}
		first, firstXID := begin()
		go func() { created <- newWALStore(t, db, pgxstore.OutboxConfig{}) }()
		awaited(firstXID)
		second, secondXID := begin()
		db.exec(t, `CREATE TABLE beside (n int)`)
		end(first)
		awaited(secondXID)
		db.exec(t, `INSERT INTO beside VALUES (1)`)
		end(second)
		w.store = <-created

		db.exec(t, `INSERT INTO beside VALUES (2)`)
		w.mustEnqueue("a-1")
		s := w.hold(w.open(time.Hour))
		if got := idsOf(w.lease(s, 1)); got[0] != "a-1" {
			t.Errorf("leased %v, want a-1", got)
		}
	})
}
