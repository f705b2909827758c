package testdb_test

import (
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	_ "github.com/go-sql-driver/mysql"
	_ "github.com/jackc/pgx/v5/stdlib" // "pgx" for database/sql

	"github.com/txonce/txonce/internal/test/testdb"
)

// Whatever a test does in a schema that is used again, the next test finds it as if it were new.
func TestReused(t *testing.T) {
	const more = "CREATE TABLE mine (n int); INSERT INTO mine VALUES (7); "
	byPgBouncer := func(t *testing.T) string {
		pooled, _ := testdb.ReusedPgBouncer(t, more)
		return pooled + "&default_query_exec_mode=exec"
	}
	for name, place := range map[string]struct {
		driver, current string
		open            func(t *testing.T) (dsn string)
		changes         []string
	}{
		"PostgreSQL 15": {"pgx", "current_schema()", func(t *testing.T) string { return testdb.Reused(t, testdb.Postgres(t), more) }, postgresChanges},
		"PostgreSQL 18": {"pgx", "current_schema()", func(t *testing.T) string { return testdb.Reused(t, testdb.Postgres18(t), more) }, postgresChanges[:4]},
		"PgBouncer":     {"pgx", "current_schema()", byPgBouncer, postgresChanges[:2]},
		"MariaDB": {
			"mysql", "database()", func(t *testing.T) string { return testdb.ReusedMySQL(t, more) },
			mysqlChanges,
		},
	} {
		t.Run(name, func(t *testing.T) {
			var schema string
			var fresh []string
			use := func(title string, statements ...string) {
				t.Run(title, func(t *testing.T) {
					db, err := sql.Open(place.driver, place.open(t))
					if err != nil {
						t.Fatal(err)
					}
					defer db.Close()
					current := rows(t, db, "SELECT "+place.current)[0]
					found := contents(t, db, place.current)
					if schema == "" {
						schema, fresh = current, found
					}
					if current != schema {
						t.Errorf("it is in %s, and the first test was in %s", current, schema)
					}
					if !slices.Equal(found, fresh) {
						t.Errorf("a new schema has\n%s\nand this one\n%s", strings.Join(fresh, "\n"),
							strings.Join(found, "\n"))
					}
					for _, q := range statements {
						if _, err := db.Exec(q); err != nil {
							t.Fatalf("%s: %v", q, err)
						}
					}
				})
			}
			use("new")
			for _, change := range place.changes {
				use(change, strings.Split(change, "; ")...)
			}
			use("after all")
		})
	}
}

var postgresChanges = []string{
	"INSERT INTO mine VALUES (8); DELETE FROM txonce_shards WHERE shard > 3; UPDATE txonce_schema SET version = version + 100",
	"DELETE FROM txonce_sweep; INSERT INTO txonce_windows VALUES ('c', 1, now(), now())",
	"INSERT INTO mine SELECT generate_series(1, 100000)",
	"ALTER TABLE mine ALTER n SET DEFAULT 5",
	"ALTER TABLE mine ADD m int",
	"ALTER TABLE mine ADD CHECK (n <> 1)",
	"DROP TABLE dead_letters",
	"DROP INDEX dead_letters_message",
	"CREATE TABLE other (n int)",
	"CREATE VIEW other AS SELECT 1 AS n",
	"CREATE TYPE other AS ENUM ('a')",
	"CREATE FUNCTION f() RETURNS int LANGUAGE sql AS 'SELECT 1'",
	"CREATE RULE r AS ON INSERT TO mine DO INSTEAD NOTHING",
	"ALTER TABLE outbox_messages RENAME TO elsewhere",
	"ALTER SEQUENCE outbox_seq INCREMENT 2",
	"GRANT SELECT ON mine TO pg_monitor",
	"TRUNCATE mine",
}

var mysqlChanges = []string{
	"INSERT INTO mine VALUES (8); DELETE FROM txonce_shards WHERE shard > 3; UPDATE txonce_schema SET version = version + 100",
	"DELETE FROM txonce_sweep; DELETE FROM outbox_locks; INSERT INTO txonce_windows VALUES ('c', 1, 2, 3)",
	"ALTER TABLE mine ADD COLUMN m INT",
	"ALTER TABLE mine MODIFY n BIGINT",
	"ALTER TABLE mine ENGINE = MyISAM",
	"DROP TABLE dead_letters",
	"ALTER TABLE mine ADD INDEX (n)",
	"CREATE TABLE other (n INT)",
	"CREATE TABLE other (n INT) ENGINE = MyISAM",
	"CREATE VIEW other AS SELECT 1 AS n",
	"RENAME TABLE outbox_messages TO elsewhere",
}

// contents lists the columns and rows of the schema that current names.
func contents(t *testing.T, db *sql.DB, current string) (all []string) {
	t.Helper()
	all = rows(t, db, "SELECT table_name, column_name, data_type, column_default FROM information_schema.columns WHERE table_schema = "+current+
		" ORDER BY table_name, ordinal_position")
	for _, table := range rows(t, db, "SELECT table_name FROM information_schema.tables WHERE table_schema = "+current+
		" ORDER BY table_name") {
		columns := "*"
		if table == "txonce_schema" {
			columns = "version, works_with" // not the time
		}
		found := rows(t, db, "SELECT "+columns+" FROM "+table+" ORDER BY 1")
		all = append(all, fmt.Sprintf("%s: %d rows: %.500v", table, len(found), found))
	}
	return all
}

func rows(t *testing.T, db *sql.DB, query string) (all []string) {
	t.Helper()
	found, err := db.Query(query)
	if err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	defer found.Close()
	columns, err := found.Columns()
	if err != nil {
		t.Fatal(err)
	}
	values := make([]sql.NullString, len(columns))
	into := make([]any, len(columns))
	for i := range values {
		into[i] = &values[i]
	}
	for found.Next() {
		if err := found.Scan(into...); err != nil {
			t.Fatal(err)
		}
		var row []string
		for _, v := range values {
			row = append(row, v.String)
		}
		all = append(all, strings.Join(row, " "))
	}
	if err := found.Err(); err != nil {
		t.Fatal(err)
	}
	return all
}

// A schema is not given to another test while a transaction of the last one is open.
func TestReusedWaitsForTransactions(t *testing.T) {
	if testing.Short() {
		t.Skip("needs databases; -short runs only what needs nothing but Go")
	}
	for name, place := range map[string]struct {
		driver string
		open   func(t *testing.T) (dsn string)
	}{
		"PostgreSQL": {"pgx", func(t *testing.T) string { return testdb.Reused(t, testdb.Postgres(t), "CREATE TABLE waits (n int);") }},
		"MariaDB":    {"mysql", func(t *testing.T) string { return testdb.ReusedMySQL(t, "CREATE TABLE waits (n INT);") }},
	} {
		t.Run(name, func(t *testing.T) {
			var tx *sql.Tx
			var ended atomic.Bool // the transaction
			t.Run("the last test", func(t *testing.T) {
				db, err := sql.Open(place.driver, place.open(t))
				if err != nil {
					t.Fatal(err)
				}
				if tx, err = db.Begin(); err != nil {
					t.Fatal(err)
				}
				if _, err := tx.Exec("INSERT INTO waits VALUES (1)"); err != nil {
					t.Fatal(err)
				}
				time.AfterFunc(300*time.Millisecond, func() { // meanwhile this test ends
					ended.Store(true)
					if err := errors.Join(tx.Rollback(), db.Close()); err != nil {
						panic(err)
					}
				})
			})
			if !ended.Load() {
				t.Error("the schema was emptied while a transaction was open")
			}
		})
	}
}
