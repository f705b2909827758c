package pgxstore_test

import (
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/txonce/txonce/adapters/pgxstore"
	"github.com/txonce/txonce/consumer"
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

// newStore returns a store with a ClaimTimeout that suits a busy machine, unless cfg sets one. The limit also applies to BEGIN.
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

// again repeats f while its error may be temporary: on a busy machine a lock may time out, or a transaction may be idle too
// long.
func again(s *pgxstore.Store, f func() error) error {
	for began := time.Now(); ; <-time.After(5 * time.Millisecond) {
		err := f()
		passes := s.Retryable(err) || errors.Is(err, dedup.ErrInFlight)
		if !passes || time.Since(began) > 2*time.Minute {
			return err
		}
	}
}

// makeTables creates txonce's tables and then runs more.
func makeTables(tb testing.TB, pool *pgxpool.Pool, more string) {
	tb.Helper()
	if _, err := pool.Exec(tb.Context(), testdb.PostgresTables(tb, more), pgx.QueryExecModeSimpleProtocol); err != nil {
		tb.Fatal(err)
	}
}

func newConsumer(tb testing.TB, store *pgxstore.Store, cfg consumer.Config[pgx.Tx]) *consumer.Consumer[pgx.Tx] {
	tb.Helper()
	cfg.Store, cfg.Key = store, consumer.MessageID
	c, err := consumer.New(cfg)
	if err != nil {
		tb.Fatal(err)
	}
	return c
}
