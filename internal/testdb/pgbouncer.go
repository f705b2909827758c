package testdb

import (
	"net/url"
	"strings"
	"testing"
)

// PgBouncer creates a database on PostgreSQL 15 and returns its DSN through a PgBouncer in transaction mode, and without
// it. The database is dropped when the test ends.
//
// It is a database, where Schema is enough elsewhere, because a schema would have to be said in search_path: the pooler
// refuses that as a parameter of the connection, and one session's SET is met by another client.
func PgBouncer(t testing.TB) (pooled, direct string) {
	t.Helper()
	pooler, server := postgres(t, "TXONCE_PGBOUNCER", "PgBouncer"), Postgres(t)
	name := randomName(t) // no quoting needed, see there
	if err := execute(t, server, "CREATE DATABASE "+name); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := execute(t, server, "DROP DATABASE "+name+" WITH (FORCE)"); err != nil {
			t.Error(err)
		}
	})
	return withDatabase(t, pooler, name), withDatabase(t, server, name)
}

// withDatabase replaces the database in a DSN of either form, URL or keywords.
func withDatabase(t testing.TB, dsn, name string) string {
	if !strings.Contains(dsn, "://") {
		return dsn + " dbname=" + name
	}
	u, err := url.Parse(dsn)
	if err != nil {
		t.Fatal(err)
	}
	u.Path = "/" + name
	return u.String()
}
