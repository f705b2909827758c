package sqlstore_test

import (
	"context"
	"database/sql"
	"errors"
	"testing"

	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/dedup/deduptest"
	"github.com/txonce/txonce/internal/dialect"
	"github.com/txonce/txonce/internal/test/matrix"
	"github.com/txonce/txonce/internal/test/testdb"
)

// fixture is an empty database with txonce's tables.
type fixture struct {
	*sql.DB
	dialect string
	dsn     string
	isMySQL bool // and not MariaDB
	open    func(o deduptest.Options) *node
	clock   string // an SQL expression: the database's time, in the format of its tables
	later   string // an SQL suffix: clock + later is two days later
}

// eachDatabase runs f as a subtest on SQLite, on one version of PostgreSQL, and on MariaDB or MySQL; see matrix.RunsOn.
func eachDatabase(t *testing.T, f func(t *testing.T, db fixture)) {
	t.Parallel() // these tests mostly wait
	t.Run("sqlite", func(t *testing.T) {
		d := openSQLite(t)
		f(t, fixture{
			DB: d.db, dsn: d.dsn, dialect: "sqlite",
			open:  func(o deduptest.Options) *node { return d.open(t, d.dsn, o) },
			clock: `CAST(unixepoch('subsec') * 1000000 AS INTEGER)`, later: `2 * 86400 * 1000000`,
		})
	})
	for name, server := range map[string]func(testing.TB) string{
		"postgres15": testdb.Postgres,
		"postgres18": testdb.Postgres18,
	} {
		if !matrix.RunsOn(name, t.Name()) {
			continue
		}
		t.Run(name, func(t *testing.T) {
			d := openPostgres(t, server(t))
			f(t, fixture{
				DB: d.db, dsn: d.dsn, dialect: "postgres",
				open:  func(o deduptest.Options) *node { return d.open(t, d.dsn, o) },
				clock: `clock_timestamp()`, later: `interval '2 days'`,
			})
		})
	}
	for _, name := range []string{"mariadb", "mysql"} {
		if !matrix.RunsOn(name, t.Name()) {
			continue
		}
		t.Run(name, func(t *testing.T) {
			d := openMySQL(t)
			f(t, fixture{
				DB: d.db, dsn: d.dsn, dialect: "mysql", isMySQL: d.isMySQL,
				open:  func(o deduptest.Options) *node { return d.open(t, d.dsn, o) },
				clock: dialect.MySQLClock, later: `2 * 86400 * 1000000`,
			})
		})
	}
}

func (f fixture) count(t *testing.T, query string) (n int) {
	t.Helper()
	if err := f.QueryRow(query).Scan(&n); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	return n
}

func record(id string) dedup.Record {
	return dedup.Record{Key: dedup.Key{Consumer: "billing", ID: id}}
}

var errUndo = errors.New("undo")

// claim claims recs in a transaction of InTx and commits.
func claim(t *testing.T, s *node, recs ...dedup.Record) (answers []dedup.Claim) {
	t.Helper()
	err := s.InTx(t.Context(), recs, func(_ *sql.Tx, c []dedup.Claim) error {
		answers = c
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return answers
}

// warm connects and registers, and retries if the Store's short timeouts end early.
func warm(t *testing.T, s *node) {
	t.Helper()
	err := again(s, func() error {
		return s.InTx(t.Context(), []dedup.Record{record("warm")}, func(*sql.Tx, []dedup.Claim) error { return nil })
	})
	if err != nil {
		t.Fatal(err)
	}
}

// within runs fn in a transaction of InTx and commits.
func within(t *testing.T, s *node, fn func(ctx context.Context, tx *sql.Tx) error) {
	t.Helper()
	ctx := t.Context()
	if err := s.InTx(ctx, nil, func(tx *sql.Tx, _ []dedup.Claim) error { return fn(ctx, tx) }); err != nil {
		t.Fatal(err)
	}
}
