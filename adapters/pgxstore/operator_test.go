package pgxstore_test

import (
	"testing"

	"github.com/jackc/pgx/v5"

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
