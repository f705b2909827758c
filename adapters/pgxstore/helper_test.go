package pgxstore_test

import (
	"errors"
	"io/fs"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/txonce/txonce/adapters/pgxstore"
	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/migrations"
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

// allMigrations is all files one after the other.
var allMigrations = sync.OnceValues(func() (string, error) {
	files, err := migrations.FS("postgres")
	if err != nil {
		return "", err
	}
	names, err := fs.Glob(files, "*.up.sql") // sorted
	if err != nil {
		return "", err
	}
	var all strings.Builder
	for _, name := range names {
		text, err := fs.ReadFile(files, name)
		if err != nil {
			return "", err
		}
		all.Write(text)
	}
	return all.String(), nil
})

// makeTables does what Migrate does, and runs more, in one round trip and without Migrate's lock, behind which all tests would queue:
// there is a schema for each of some thousand cases.
func makeTables(tb testing.TB, pool *pgxpool.Pool, more string) {
	tb.Helper()
	sql, err := allMigrations()
	if err != nil {
		tb.Fatal(err)
	}
	if _, err := pool.Exec(tb.Context(), "BEGIN; SET LOCAL synchronous_commit = off;"+sql+more+"; COMMIT", pgx.QueryExecModeSimpleProtocol); err != nil {
		tb.Fatal(err)
	}
}
