//go:build unix

package pgxstore_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/txonce/txonce/adapters/pgxstore"
	"github.com/txonce/txonce/internal/test/testdb"
)

// Where COMMIT waits for synchronous standbys, its answer needs a closer look, so no claim travels with it.
func TestSequenceWithStandbys(t *testing.T) {
	if reason := testdb.NoOwnPostgres(); reason != "" {
		t.Logf("does not apply: %s", reason)
		return
	}
	primary := testdb.StartPostgres(t, "synchronous_standby_names=absent", "synchronous_commit=local") // local: it does not wait in this test
	makeTables(t, testPool(t, primary.DSN, 1), `CREATE TABLE effects (name text NOT NULL)`)
	trips := &roundTrips{}
	cfg, err := pgxpool.ParseConfig(primary.DSN)
	if err != nil {
		t.Fatal(err)
	}
	cfg.MaxConns, cfg.ConnConfig.Tracer = 1, trips
	pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	c := inOrder(t, newStore(t, pgxstore.Config{Pool: pool, AllowAsyncCommit: true}), writeEffect)
	for _, prefix := range []string{"prepares statements ", "m"} {
		trips.take()
		for _, err := range c.ProcessBatch(t.Context(), numbered(prefix, 2)) {
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	one := []string{`begin isolation level + insert into processed_messages`, `insert into effects`, `commit`}
	if diff := cmp.Diff(append(one, one...), trips.take()); diff != "" {
		t.Errorf("round trips (-want +got):\n%s", diff)
	}
}
