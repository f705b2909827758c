package sqlstore_test

import (
	"context"
	"database/sql"
	"testing"
	"time"

	"github.com/txonce/txonce/adapters/sqlstore"
	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/migrations"
)

// An in-memory database ends with its connection. The Store keeps that connection also when the context of a claim ends
// while its transaction begins.
func TestSQLiteInMemoryOutlivesAContext(t *testing.T) {
	db := openDB(t, "sqlite", ":memory:")
	db.SetMaxOpenConns(1)
	if err := migrations.Apply(t.Context(), db, "sqlite", ""); err != nil {
		t.Fatal(err)
	}
	s := newNode(t, db, sqlstore.Config{Dialect: sqlstore.SQLite})
	ended := 0
	for i := range 300 { // some of these contexts end while the transaction begins
		ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i)*time.Microsecond/2)
		err := s.InTx(ctx, []dedup.Record{record("k")}, func(*sql.Tx, []dedup.Claim) error { return nil })
		cancel()
		if err != nil {
			ended++
		}
		var n int
		if err := db.QueryRow(`SELECT count(*) FROM processed_messages`).Scan(&n); err != nil {
			t.Fatalf("after %d claims that failed: %v", ended, err)
		}
	}
	if ended == 0 {
		t.Error("no context ended too early")
	}
}
