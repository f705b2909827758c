package testdb

import "testing"

// Tables is Schema with txonce's tables and those that the statements in more create.
func Tables(t testing.TB, dsn, more string) string {
	t.Helper()
	dsn = Schema(t, dsn)
	if err := execute(t, dsn, PostgresTables(t, more)); err != nil {
		t.Fatal(err)
	}
	return dsn
}
