package sqlstore_test

import (
	"database/sql"
	"testing"

	"github.com/txonce/txonce/consumer/ops/opstest"
	"github.com/txonce/txonce/dedup/deduptest"
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
	})
}

func TestOperatorMariaDB(t *testing.T) {
	t.Parallel()
	opstest.TestStore(t, deduptest.Harness[*sql.Tx]{
		New: func(t *testing.T) deduptest.DB[*sql.Tx] { return newMySQLDB(t, false) },
	})
}
