package pgxstore_test

import (
	"testing"
	"time"

	"github.com/txonce/txonce/adapters/pgxstore"
	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/internal/test/testdb"
)

// The read that finds a batch of duplicates writes nothing, so COMMIT would not wait, although the first commit may be
// on no standby yet.
func TestABatchOfDuplicatesWaitsForAStandby(t *testing.T) {
	if reason := testdb.NoOwnPostgres(); reason != "" {
		t.Logf("does not apply: %s", reason)
		return
	}
	dsn := testdb.StartPostgres(t).DSN
	db := newOutboxDBAt(t, dsn, 3)
	s, first, again := pairOfDuplicates(t, db)
	if err := s.InTx(t.Context(), again, doNothing); err != nil {
		t.Fatalf("without a standby: %v", err)
	}
	admin := testPool(t, dsn+"&synchronous_commit=local", 2)
	for _, sql := range []string{`ALTER SYSTEM SET synchronous_standby_names = 'nobody'`, `SELECT pg_reload_conf()`} {
		if _, err := admin.Exec(t.Context(), sql); err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
	}
	awaitWaitingCommits(t, db.pool, admin)
	pgxstore.SetEndWithin(s, 200*time.Millisecond)
	for _, recs := range [][]dedup.Record{again, first} {
		if err := s.InTx(t.Context(), recs, doNothing); !s.Retryable(err) {
			t.Errorf("InTx = %v, want a retryable error, because no standby has the first commit", err)
		}
	}
}

// A claim checks its session, also if it only reads.
func TestABatchOfDuplicatesInAChangedSession(t *testing.T) {
	db := newOutboxDB(t, testdb.Postgres, 1)
	s, _, again := pairOfDuplicates(t, db)
	if _, err := db.pool.Exec(t.Context(), `SET synchronous_commit = off`); err != nil {
		t.Fatal(err)
	}
	if err := s.InTx(t.Context(), again, doNothing); err != nil {
		t.Fatal(err)
	}
	if got := db.strings(t, `SHOW synchronous_commit`); got[0] != "on" {
		t.Errorf("the connection with synchronous_commit = %s is still in the pool", got[0])
	}
}

// pairOfDuplicates returns two records whose keys are claimed, and the same records as redelivered.
func pairOfDuplicates(t *testing.T, db *outboxDB) (s *pgxstore.Store, first, again []dedup.Record) {
	t.Helper()
	s = newStore(t, pgxstore.Config{Pool: db.pool})
	first = append(ordinaryRecord("k"), ordinaryRecord("l")...)
	if err := s.InTx(t.Context(), first, doNothing); err != nil {
		t.Fatal(err)
	}
	return s, first, append(redeliveredRecord("k"), redeliveredRecord("l")...)
}
