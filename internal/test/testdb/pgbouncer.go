package testdb

import (
	"net/url"
	"strings"
	"testing"
)

// PgBouncer creates a schema on PostgreSQL 15 and returns two DSNs of a superuser whose search_path is that schema,
// through a PgBouncer in transaction mode and without it. The role and the schema are dropped when the test ends.
//
// It needs a role, where other tests need only a setting in the DSN: the pooler refuses search_path as a connection
// parameter, and settings of one client's session would affect the next client.
func PgBouncer(t testing.TB) (pooled, direct string) {
	t.Helper()
	pooler, server := postgres(t, "TXONCE_PGBOUNCER", "PgBouncer"), Postgres(t)
	name := RandomName(t) // needs no quotes, see randomName
	if err := execute(t, server, "CREATE SCHEMA "+name+"; CREATE ROLE "+name+" SUPERUSER LOGIN; ALTER ROLE "+name+
		" SET search_path = "+name); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := execute(t, server, "SET lock_timeout = '1min'; DROP SCHEMA "+name+" CASCADE; DROP OWNED BY "+name+
			" CASCADE; DROP ROLE "+name); err != nil {
			t.Error(err)
		}
	})
	return withUser(t, pooler, name), withUser(t, server, name)
}

// withUser replaces the user in a DSN, which is a URL or a list of keywords.
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
