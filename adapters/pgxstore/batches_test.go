package pgxstore_test

import (
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/txonce/txonce/consumer/consumertest"
	"github.com/txonce/txonce/dedup/deduptest"
	"github.com/txonce/txonce/internal/test/testdb"
)

func TestBatches(t *testing.T) {
	consumertest.TestBatches(t, deduptest.Harness[pgx.Tx]{
		New: func(t *testing.T) deduptest.DB[pgx.Tx] { return newDB(t, testdb.Postgres18(t)) },
	})
}
