// Package engines lists the databases that the adapters for HTTP are tested on. Each has txonce's tables and a table of
// effects.
package engines

import (
	"database/sql"
	"path/filepath"
	"testing"

	_ "github.com/go-sql-driver/mysql" // registers "mysql", which testdb takes
	_ "github.com/jackc/pgx/v5/stdlib" // Engine.SQL
	_ "modernc.org/sqlite"             // Engine.SQL

	"github.com/txonce/txonce/dedup/deduptest"
	"github.com/txonce/txonce/internal/test/testdb"
	"github.com/txonce/txonce/internal/test/wireproxy"
	"github.com/txonce/txonce/migrations"
)

// Engine is a kind of database.
type Engine struct {
	Name   string
	Driver string // of database/sql
	Insert string // a statement with two arguments: the name and the token of an effect

	// Create makes a database with txonce's tables and the table effects, whose columns are name and token.
	Create func(t testing.TB) (dsn string)

	// Faulty and Chaos are those of package wireproxy. They are nil if no network lies between.
	Faulty func(t testing.TB, dsn string, f deduptest.Fault) string
	Chaos  func(t testing.TB, dsn string, pick func() (deduptest.Fault, bool)) string
}

// The engines.
var (
	Postgres = Engine{
		Name: "postgres", Driver: "pgx", Faulty: wireproxy.Postgres, Chaos: wireproxy.PostgresEach,
		Insert: `INSERT INTO effects VALUES ($1, $2)`,
		Create: func(t testing.TB) string {
			return testdb.Tables(t, testdb.Postgres(t),
				"CREATE TABLE effects (name text NOT NULL, token text NOT NULL)")
		},
	}
	MariaDB = mysqlEngine("mariadb")
	MySQL   = mysqlEngine("mysql")
	SQLite  = Engine{
		Name: "sqlite", Driver: "sqlite", Insert: `INSERT INTO effects VALUES (?, ?)`,
		Create: func(t testing.TB) string {
			dsn := "file:" + filepath.Join(t.TempDir(), "test.db") + "?_pragma=journal_mode(wal)"
			db := open(t, "sqlite", dsn)
			if err := migrations.Apply(t.Context(), db, "sqlite", ""); err != nil {
				t.Fatal(err)
			}
			exec(t, db, `CREATE TABLE effects (name TEXT NOT NULL, token TEXT NOT NULL)`)
			return dsn
		},
	}
)

// mysqlEngine is on the server that the name of the subtest says: see testdb.OnMySQL.
func mysqlEngine(name string) Engine {
	return Engine{
		Name: name, Driver: "mysql", Faulty: wireproxy.MySQL, Chaos: wireproxy.MySQLEach,
		Insert: `INSERT INTO effects VALUES (?, ?)`,
		Create: func(t testing.TB) string {
			return testdb.MySQLTables(t, `CREATE TABLE effects (name VARCHAR(255) NOT NULL, token VARCHAR(255) NOT NULL)`)
		},
	}
}

func open(t testing.TB, driver, dsn string) *sql.DB {
	t.Helper()
	db, err := sql.Open(driver, dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	db.SetMaxIdleConns(16) // a new connection costs the server more than most statements do
	return db
}

func exec(t testing.TB, db *sql.DB, query string) {
	t.Helper()
	if _, err := db.ExecContext(t.Context(), query); err != nil {
		t.Fatal(err)
	}
}
