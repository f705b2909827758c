package sqlstore_test

import (
	"database/sql"
	"testing"

	"github.com/txonce/txonce/consumer/ops/opstest"
	"github.com/txonce/txonce/dedup/deduptest"
	"github.com/txonce/txonce/internal/test/matrix"
	"github.com/txonce/txonce/internal/test/testdb"
)

func TestOperatorSQLite(t *testing.T) {
	t.Parallel()
	opstest.TestStore(t, sqliteHarness())
}

func TestOperatorPostgres(t *testing.T) {
	t.Parallel()
	opstest.TestStore(t, deduptest.Harness[*sql.Tx]{
		New: func(t *testing.T) deduptest.DB[*sql.Tx] { return newPostgresDB(t, testdb.Postgres(t)) },
		// pgxstore runs all of them: both use internal/operator
		Select: func(name, _ string) bool { return matrix.Dealt(name, 0, 2) },
	})
}

func TestOperatorMariaDB(t *testing.T) {
	t.Parallel()
	opstest.TestStore(t, deduptest.Harness[*sql.Tx]{
		New: func(t *testing.T) deduptest.DB[*sql.Tx] { return newMySQLDB(t) },
	})
}
