package pgxstore_test

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/txonce/txonce/adapters/pgxstore"
	"github.com/txonce/txonce/consumer/ops/opstest"
	"github.com/txonce/txonce/dedup/deduptest"
	"github.com/txonce/txonce/internal/test/testdb"
)

func TestOperator(t *testing.T) {
	t.Parallel()
	opstest.TestStore(t, deduptest.Harness[pgx.Tx]{
		New: func(t *testing.T) deduptest.DB[pgx.Tx] { return newDB(t, testdb.Postgres(t)) },
	})
}

// A process that freezes inside of a transaction must not keep its locks: no other worker would get a letter, and no
// other sweep would run.
func TestIdleTransactionsEnd(t *testing.T) {
	t.Parallel()
	node := newDB(t, testdb.Postgres(t)).Open(t, deduptest.Options{}).(*node)
	for name, ask := range map[string]func(context.Context, *pgxstore.Store) (string, error){
		"operator": pgxstore.OperatorIdleLimit, "sweep": pgxstore.SweepIdleLimit,
	} {
		if limit, err := ask(t.Context(), node.Store); err != nil || limit != "10s" {
			t.Errorf("%s: %q, %v; want 10s", name, limit, err)
		}
	}
}
