package sqlstore_test

import (
	"database/sql"
	"testing"

	"github.com/txonce/txonce/consumer/consumertest"
	"github.com/txonce/txonce/dedup/deduptest"
	"github.com/txonce/txonce/internal/test/testdb"
)

func TestBatches(t *testing.T) {
	for name, open := range map[string]func(t *testing.T) deduptest.DB[*sql.Tx]{
		"PostgreSQL": func(t *testing.T) deduptest.DB[*sql.Tx] { return newPostgresDB(t, testdb.Postgres18(t)) },
		"MariaDB":    func(t *testing.T) deduptest.DB[*sql.Tx] { return newMySQLDB(t) },
		"SQLite":     newSQLiteDB,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			consumertest.TestBatches(t, deduptest.Harness[*sql.Tx]{New: open})
		})
	}
}
