package pgxstore_test

import (
	"io/fs"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/txonce/txonce/adapters/pgxstore"
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

// newStore returns a store that waits for a busy machine, unless cfg says for how long: also BEGIN has no longer than InFlightWait.
func newStore(tb testing.TB, cfg pgxstore.Config) *pgxstore.Store {
	tb.Helper()
	if cfg.InFlightWait == 0 {
		cfg.InFlightWait = 2 * time.Minute
	}
	s, err := pgxstore.New(cfg)
	if err != nil {
		tb.Fatal(err)
	}
	return s
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
