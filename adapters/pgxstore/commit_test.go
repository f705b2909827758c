package pgxstore_test

import (
	"testing"
	"time"

	"github.com/txonce/txonce/adapters/pgxstore"
	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/internal/test/testdb"
)

// A warning that the application itself raises at COMMIT says nothing about standbys.
func TestCommitWithAWarning(t *testing.T) {
	db := newOutboxDB(t, testdb.Postgres, 2)
	db.exec(t, `CREATE FUNCTION warn() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE WARNING 'low stock'; RETURN NULL; END $$`)
	db.exec(t, `CREATE CONSTRAINT TRIGGER warn AFTER INSERT ON effects DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION warn()`)
	conn, err := db.pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	tx, err := conn.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := effect(t.Context(), tx, "one"); err != nil {
		t.Fatal(err)
	}
	if err := pgxstore.CommitReplicated(t.Context(), conn.Conn().PgConn()); err != nil {
		t.Errorf("COMMIT = %v", err)
	}
	if got := db.strings(t, `SELECT name FROM effects`); len(got) != 1 {
		t.Errorf("effects %v, want one", got)
	}
}

// When the caller's transactions hold all connections of the pool at the first claim, that claim fails within
// ClaimTimeout.
func TestFirstClaimWithoutAFreeConnection(t *testing.T) {
	db := newOutboxDB(t, testdb.Postgres, 1)
	s := newStore(t, pgxstore.Config{Pool: db.pool, ClaimTimeout: 50 * time.Millisecond})
	tx, err := db.pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() {
		_, err := s.Claim(t.Context(), tx, []dedup.Record{{Key: dedup.Key{Consumer: "billing", ID: "k"}, Time: time.Now()}})
		done <- err
	}()
	select {
	case err := <-done:
		if !s.Retryable(err) {
			t.Errorf("Claim = %v; want a retryable error", err)
		}
		if _, err := tx.Exec(t.Context(), `SELECT 1`); err != nil {
			t.Errorf("the caller's transaction: %v", err)
		}
	case <-time.After(30 * time.Second):
		t.Error("Claim hangs")
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Error(err)
	}
}
