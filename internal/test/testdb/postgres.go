package testdb

import (
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
	return schema(t, dsn, func(name string) string { return "CREATE SCHEMA " + name })
}

// schema makes a schema with the statements that create returns for its name.
func schema(t testing.TB, dsn string, create func(name string) string) string {
	t.Helper()
	name := randomName(t) // needs no quotes, see randomName
	if err := execute(t, dsn, create(name)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := execute(t, dsn, "SET lock_timeout = '1min'; DROP SCHEMA "+name+" CASCADE"); err != nil {
			t.Error(err)
		}
	})
	return withParameter(dsn, "search_path", name)
}

// withParameter adds a parameter to a DSN, which is a URL or a list of keywords.
func withParameter(dsn, name, value string) string {
	switch {
	case !strings.Contains(dsn, "://"):
		return dsn + " " + name + "=" + value
	case strings.Contains(dsn, "?"):
		return dsn + "&" + name + "=" + value
	default:
		return dsn + "?" + name + "=" + value
	}
}
