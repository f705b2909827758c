package testdb

import (
	"testing"

	"github.com/txonce/txonce/internal/test/dsn"
)

// Postgres returns the DSN of a PostgreSQL 15 superuser. A benchmark gets a fresh server with default durability, whose
// data is in the folder for temporary files: the shared server may have its data in memory, where COMMIT costs next to
// nothing, and what surrounds a COMMIT would look dearer than it is.
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
	address := Server(t, env, title)
	at, err := dsn.ParsePostgres(address)
	if err != nil {
		t.Fatalf("%s: %v", env, err)
	}
	network, listens := at.Address()
	Answers(t, title, network, listens)
	return address
}

// Schema creates a schema on the server of dsn and returns a DSN whose search_path is that schema. The schema is
// dropped when the test ends. The test fails if a transaction on its tables is still open then.
func Schema(t testing.TB, dsn string) string {
	t.Helper()
	return schema(t, dsn, func(name string) string { return "CREATE SCHEMA " + name })
}

// schema makes a schema with the statements that create returns for its name.
func schema(t testing.TB, server string, create func(name string) string) string {
	t.Helper()
	name := RandomName(t) // needs no quotes, see randomName
	if err := execute(t, server, create(name)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := execute(t, server, "SET lock_timeout = '1min'; DROP SCHEMA "+name+" CASCADE"); err != nil {
			t.Error(err)
		}
	})
	return dsn.WithPostgres(server, "search_path", name)
}

// Unguarded is statement, a DELETE on processed_messages without RETURNING, with the mark that the trigger txonce_guard
// asks for: the test deletes keys behind txonce's back.
func Unguarded(statement string) string {
	return "WITH gone AS (" + statement + " RETURNING 1) SELECT count(*) FROM gone " +
		"WHERE (SELECT set_config('txonce.sweep', pg_current_xact_id()::text, true)) IS NOT NULL"
}
