package testdb

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// Postgres returns the DSN of a PostgreSQL 15 superuser. A benchmark gets a fresh server with default durability, whose data is in the
// folder for temporary files: the shared server may have its data in memory, where COMMIT costs next to nothing, and what surrounds a
// COMMIT would look dearer than it is.
func Postgres(t testing.TB) (dsn string) {
	t.Helper()
	if _, ok := t.(*testing.B); ok {
		return StartPostgres(t).DSN
	}
	return postgres(t, "TXONCE_POSTGRES", "PostgreSQL 15")
}

// Postgres18 returns the DSN of a PostgreSQL 18 superuser.
func Postgres18(t testing.TB) (dsn string) {
	t.Helper()
	return postgres(t, "TXONCE_POSTGRES18", "PostgreSQL 18")
}

func postgres(t testing.TB, env, title string) string {
	t.Helper()
	dsn := server(t, env, title)
	cfg, err := pgx.ParseConfig(dsn)
	if err != nil {
		t.Fatalf("%s: %v", env, err)
	}
	network, address := pgconn.NetworkAddress(cfg.Host, cfg.Port)
	answers(t, title, network, address)
	return dsn
}

// Schema creates a schema on the server of dsn and returns a DSN whose search_path is that schema. The schema is dropped when the
// test ends. The test fails if a transaction on its tables is still open then.
func Schema(t testing.TB, dsn string) string {
	t.Helper()
	name := randomName(t) // needs no quotes, see randomName
	if err := execute(t, dsn, "CREATE SCHEMA "+name); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := execute(t, dsn, "SET lock_timeout = '1min'; DROP SCHEMA "+name+" CASCADE"); err != nil {
			t.Error(err)
		}
	})
	return withSearchPath(dsn, name)
}

// execute runs statements on a new connection, as one transaction. A DROP may fail in a deadlock with autovacuum or with
// something that a test has left running; it then has no effect.
func execute(t testing.TB, dsn, sql string) error {
	ctx, cancel := cleanUpContext(t)
	defer cancel()
	conn, err := pgx.Connect(ctx, dsn)
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	for {
		_, err := conn.PgConn().Exec(ctx, sql).ReadAll()
		var pg *pgconn.PgError
		switch {
		case err == nil:
			return nil
		case !errors.As(err, &pg) || pg.Code != "40P01":
			return fmt.Errorf("%s: %w", sql, err)
		}
	}
}

// withSearchPath adds search_path to a DSN, which is a URL or a list of keywords.
func withSearchPath(dsn, schema string) string {
	switch {
	case !strings.Contains(dsn, "://"):
		return dsn + " search_path=" + schema
	case strings.Contains(dsn, "?"):
		return dsn + "&search_path=" + schema
	default:
		return dsn + "?search_path=" + schema
	}
}
