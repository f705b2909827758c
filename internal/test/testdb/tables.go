package testdb

import "testing"

// Tables is Schema with txonce's tables and those that the statements in more create.
func Tables(t testing.TB, dsn, more string) string {
	t.Helper()
	all, err := allMigrations("postgres")
	if err != nil {
		t.Fatal(err)
	}
	// In a session that is there: to begin one for each schema takes the server as long as making the tables.
	return schema(t, dsn, func(name string) string {
		return "SET LOCAL synchronous_commit = off; CREATE SCHEMA " + name + "; SET LOCAL search_path = " + name + ";" +
			all + more
	})
}

// MySQLTables is MySQL with txonce's tables and those that the statements in more create. migrations.Apply does the
// same with a round trip for each statement.
func MySQLTables(t testing.TB, more string) (dsn string) {
	t.Helper()
	all, err := allMigrations("mysql")
	if err != nil {
		t.Fatal(err)
	}
	dsn = MySQL(t)
	if err := executeMySQL(t, WithMySQL(t, dsn, "multiStatements=true"), all+more); err != nil {
		t.Fatal(err)
	}
	return dsn
}
