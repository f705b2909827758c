package testdb

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib" // "pgx" for database/sql
)

// Whatever a test does in a schema that is used again, the next test finds it as if it were new.
func TestReused(t *testing.T) {
	const more = "CREATE TABLE mine (n int); INSERT INTO mine VALUES (7); "
	byPgBouncer := func(t *testing.T) string {
		pooled, _ := ReusedPgBouncer(t, more)
		return pooled + "&default_query_exec_mode=exec"
	}
	for name, place := range map[string]struct {
		driver, current string
		open            func(t *testing.T) (dsn string)
		changes         []string
	}{
		"PostgreSQL 15": {"pgx", "current_schema()", func(t *testing.T) string { return Reused(t, Postgres(t), more) }, postgresChanges},
		"PostgreSQL 18": {"pgx", "current_schema()", func(t *testing.T) string { return Reused(t, Postgres18(t), more) }, postgresChanges[:4]},
		"PgBouncer":     {"pgx", "current_schema()", byPgBouncer, postgresChanges[:2]},
		"MariaDB":       {"mysql", "database()", func(t *testing.T) string { return ReusedMySQL(t, more) }, mysqlChanges},
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
						t.Errorf("a new schema has\n%s\nand this one\n%s", strings.Join(fresh, "\n"), strings.Join(found, "\n"))
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
	for _, table := range rows(t, db, "SELECT table_name FROM information_schema.tables WHERE table_schema = "+current+" ORDER BY table_name") {
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
	for name, open := range map[string]func(t *testing.T) (driver, dsn string, m maker, kept place){
		"PostgreSQL": func(t *testing.T) (string, string, maker, place) {
			m := postgresPlaces{dsn: Postgres(t), tables: "CREATE TABLE mine (n int)"}
			kept, err := m.create(t.Context(), randomName(t))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = execute(t, m.dsn, "DROP SCHEMA "+kept.name+" CASCADE") })
			return "pgx", withParameter(m.dsn, "search_path", kept.name), m, kept
		},
		"MariaDB": func(t *testing.T) (string, string, maker, place) {
			cfg := mysqlServer(t)
			m := newMySQLPlaces(cfg, "CREATE TABLE mine (n INT)")
			kept, err := m.create(t.Context(), randomName(t))
			if err != nil {
				t.Fatal(err)
			}
			cfg.DBName = kept.name
			t.Cleanup(func() { _ = executeMySQL(t, mysqlServer(t).FormatDSN(), "DROP DATABASE "+kept.name) })
			return "mysql", cfg.FormatDSN(), m, kept
		},
	} {
		t.Run(name, func(t *testing.T) {
			driver, dsn, m, kept := open(t)
			db, err := sql.Open(driver, dsn)
			if err != nil {
				t.Fatal(err)
			}
			defer db.Close()
			tx, err := db.Begin()
			if err != nil {
				t.Fatal(err)
			}
			defer tx.Rollback()
			if _, err := tx.Exec("INSERT INTO mine VALUES (1)"); err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
			defer cancel()
			if _, _, err := m.empty(ctx, kept); err == nil {
				t.Error("the schema was emptied while a transaction was open")
			}
			if err := tx.Rollback(); err != nil {
				t.Fatal(err)
			}
			if _, same, err := m.empty(t.Context(), kept); !same || err != nil {
				t.Errorf("empty = %v, %v after the transaction", same, err)
			}
		})
	}
}
