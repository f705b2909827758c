package testdb

import (
	"testing"

	"github.com/jackc/pgx/v5"
)

// Tables is Schema with txonce's tables and those that the statements in more create.
func Tables(t testing.TB, dsn, more string) string {
	t.Helper()
	dsn = Schema(t, dsn)
	ctx, cancel := cleanUpContext(t)
	defer cancel()
	conn, err := pgx.Connect(ctx, dsn) // not one of admins, which keep a session for each DSN, and so for each schema
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(ctx)
	if _, err := conn.PgConn().Exec(ctx, PostgresTables(t, more)).ReadAll(); err != nil {
		t.Fatal(err)
	}
	return dsn
}
