package pgxstore_test

import (
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/txonce/txonce/adapters/pgxstore"
)

func testPool(tb testing.TB, dsn string, conns int) *pgxpool.Pool {
	tb.Helper()
	cfg, err := pgxpool.ParseConfig(dsn)
	if err != nil {
		tb.Fatal(err)
	}
	cfg.MaxConns = int32(conns)
	pool, err := pgxpool.NewWithConfig(tb.Context(), cfg)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(pool.Close)
	return pool
}

func newStore(tb testing.TB, cfg pgxstore.Config) *pgxstore.Store {
	tb.Helper()
	s, err := pgxstore.New(cfg)
	if err != nil {
		tb.Fatal(err)
	}
	return s
}
