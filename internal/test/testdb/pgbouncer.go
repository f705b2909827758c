package testdb

import (
	"net/url"
	"strings"
	"testing"
)

// PgBouncer creates a schema on PostgreSQL 15, and returns the DSN of a superuser whose search_path is that schema alone,
// through a PgBouncer in transaction mode and without it. Role and schema are dropped when the test ends.
//
// It takes a role, where a setting in the DSN is enough elsewhere: the pooler refuses search_path as a parameter of the
// connection, and what one client sets for its session the next one meets.
func PgBouncer(t testing.TB) (pooled, direct string) {
	t.Helper()
	pooler, server := postgres(t, "TXONCE_PGBOUNCER", "PgBouncer"), Postgres(t)
	name := randomName(t) // no quoting needed, see there
	if err := execute(t, server, "CREATE SCHEMA "+name+"; CREATE ROLE "+name+" SUPERUSER LOGIN; ALTER ROLE "+name+" SET search_path = "+name); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := execute(t, server, "SET lock_timeout = '1min'; DROP SCHEMA "+name+" CASCADE; DROP OWNED BY "+name+" CASCADE; DROP ROLE "+name); err != nil {
			t.Error(err)
		}
	})
	return withUser(t, pooler, name), withUser(t, server, name)
}

// withUser replaces the user in a DSN of either form, URL or keywords.
func withUser(t testing.TB, dsn, name string) string {
	if !strings.Contains(dsn, "://") {
		return dsn + " user=" + name
	}
	u, err := url.Parse(dsn)
	if err != nil {
		t.Fatal(err)
	}
	u.User = url.User(name)
	return u.String()
}
