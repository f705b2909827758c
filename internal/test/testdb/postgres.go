package testdb

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// Postgres returns the DSN of a PostgreSQL 15 superuser.
func Postgres(t testing.TB) (dsn string) {
	t.Helper()
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

// Schema creates a schema on the server of dsn and returns a DSN whose search_path is that schema alone. The schema is
// dropped when the test ends; a transaction still open then on one of its tables fails the test.
func Schema(t testing.TB, dsn string) string {
	t.Helper()
	name := randomName(t) // no quoting needed, see there
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

// execute runs statements on a connection of their own, as one transaction. A DROP may be the victim of a deadlock with what the server
// does by itself, such as autovacuum, or with what a test has left running: then it has done nothing.
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

// withSearchPath adds the setting to a DSN of either form, URL or keywords.
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
