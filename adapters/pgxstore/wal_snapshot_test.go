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
		w := &walTest{t, db, newSlotlessStore(t, db, pgxstore.OutboxConfig{})}
		created := make(chan error, 1)
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
				if len(created) > 0 {
					t.Fatal("it has ended: ", <-created)
				}
				// Others, who create slots for other tests, wait for it too. The name is the default one.
				err := db.pool.QueryRow(t.Context(), `SELECT EXISTS (SELECT FROM pg_locks l JOIN pg_replication_slots r ON r.active_pid = l.pid
					WHERE l.locktype = 'transactionid' AND NOT l.granted AND l.transactionid::text = $1
					AND r.slot_name LIKE 'txonce\_%\_' || 'txonce_slots'::regclass::oid)`, xid).Scan(&waits)
				if err != nil {
					t.Fatal(err)
				}
				return waits
			})
		}
		first, firstXID := begin()
		go func() { created <- w.store.CreateOutboxSlot(t.Context()) }()
		awaited(firstXID)
		second, secondXID := begin()
		db.exec(t, `CREATE TABLE beside (n int)`)
		end(first)
		awaited(secondXID)
		db.exec(t, `INSERT INTO beside VALUES (1)`)
		end(second)
		if err := <-created; err != nil {
			t.Fatal(err)
		}

		db.exec(t, `INSERT INTO beside VALUES (2)`)
		w.mustEnqueue("a-1")
		s := w.hold(w.open(time.Hour))
		if got := idsOf(w.lease(s, 1)); got[0] != "a-1" {
			t.Errorf("leased %v, want a-1", got)
		}
	})
}
