package pgxstore_test

import (
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/txonce/txonce/adapters/pgxstore"
	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/internal/test/testdb"
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

// newStore returns a store that waits for a busy machine, unless cfg says for how long: also BEGIN has no longer than ClaimTimeout.
func newStore(tb testing.TB, cfg pgxstore.Config) *pgxstore.Store {
	tb.Helper()
	if cfg.ClaimTimeout == 0 {
		cfg.ClaimTimeout = 2 * time.Minute
	}
	s, err := pgxstore.New(cfg)
	if err != nil {
		tb.Fatal(err)
	}
	return s
}

// again repeats f while another attempt may cure what is wrong: on a busy machine a lock is not to be had in time, or a transaction has
// stood still for too long.
func again(s *pgxstore.Store, f func() error) error {
	for began := time.Now(); ; <-time.After(5 * time.Millisecond) {
		err := f()
		passes := s.Retryable(err) || errors.Is(err, dedup.ErrInFlight)
		if !passes || time.Since(began) > 2*time.Minute {
			return err
		}
	}
}

// makeTables makes txonce's tables and runs more.
func makeTables(tb testing.TB, pool *pgxpool.Pool, more string) {
	tb.Helper()
	if _, err := pool.Exec(tb.Context(), testdb.PostgresTables(tb, more), pgx.QueryExecModeSimpleProtocol); err != nil {
		tb.Fatal(err)
	}
}
