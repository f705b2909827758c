package testdb

import (
	"database/sql"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/txonce/txonce/internal/test/dsn"
	"github.com/txonce/txonce/internal/test/matrix"
)

// MySQL creates a database on a real MySQL or MariaDB (OnMySQL says which) and returns its DSN for go-sql-driver/mysql,
// with the driver's defaults. The database is dropped when the test ends. The test fails if a transaction on its tables
// is still open then.
func MySQL(t testing.TB) (dsn string) {
	t.Helper()
	at := mysqlServer(t)
	whole := at.String()
	at.Database = RandomName(t) // needs no quotes
	if err := executeMySQL(t, whole, "CREATE DATABASE "+at.Database); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := executeMySQL(t, whole, "SET lock_wait_timeout = 60", "DROP DATABASE "+at.Database); err != nil {
			t.Error(err)
		}
	})
	return at.String()
}

const (
	absent = "absent"  // the address of a server that internal/test/system/services could not start
	notRun = "not run" // run.sh lists the tests that say so
)

// OnMySQL reports whether a test of the MySQL dialect runs on MySQL; otherwise it runs on MariaDB. A subtest named
// mysql or mariadb decides itself. Other tests run on MariaDB, or with TXONCE_TEST_MYSQL=mysql on MySQL.
func OnMySQL(t testing.TB) bool {
	t.Helper()
	_, subtests, _ := strings.Cut(t.Name(), "/")
	for name := range strings.SplitSeq(subtests, "/") {
		switch kind, _, _ := strings.Cut(strings.ToLower(name), "-"); {
		case strings.Contains(kind, "mariadb"):
			return false
		case kind == "mysql", strings.HasSuffix(kind, ",_mysql"):
			return true
		}
	}
	return os.Getenv("TXONCE_TEST_MYSQL") == "mysql"
}

// mysqlServer returns the server's address without a database.
func mysqlServer(t testing.TB) dsn.MySQL {
	t.Helper()
	env, title := "TXONCE_MARIADB", "MariaDB"
	if OnMySQL(t) {
		env, title = "TXONCE_MYSQL", "MySQL"
	}
	address := Server(t, env, title)
	if address == absent && !matrix.All() {
		t.Skip(notRun + ": MySQL cannot be had on this machine")
	}
	at, err := dsn.ParseMySQL(address)
	if err != nil {
		t.Fatalf("%s: %v", env, err)
	}
	Answers(t, title, at.Network, at.Address)
	at.Database = ""
	return at
}

// WithMySQL returns a DSN with additional parameters, such as parseTime=true.
func WithMySQL(t testing.TB, address, params string) string {
	t.Helper()
	at, err := dsn.ParseMySQL(address)
	if err != nil {
		t.Fatalf("%s: %v", address, err)
	}
	return at.With(params).String()
}

// executeMySQL runs statements on a new connection.
func executeMySQL(t testing.TB, dsn string, statements ...string) error {
	ctx, cancel := CleanUpContext(t)
	defer cancel()
	db, err := sql.Open("mysql", dsn)
	if err != nil {
		return err
	}
	defer db.Close()
	conn, err := db.Conn(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	for _, q := range statements {
		if _, err := conn.ExecContext(ctx, q); err != nil {
			return fmt.Errorf("%s: %w", q, err)
		}
	}
	return nil
}

// MySQLRowsRead returns how many rows the session has read so far. db must have one connection.
func MySQLRowsRead(t testing.TB, db *sql.DB) (n int64) {
	t.Helper()
	// MySQL and MariaDB have the counters in tables of different schemas.
	rows, err := db.QueryContext(t.Context(), `SHOW SESSION STATUS WHERE Variable_name IN
		('Handler_read_first', 'Handler_read_key', 'Handler_read_last', 'Handler_read_next', 'Handler_read_prev', 'Handler_read_rnd', 'Handler_read_rnd_next')`)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		var name string
		var read int64
		if err := rows.Scan(&name, &read); err != nil {
			t.Fatal(err)
		}
		n += read
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return n
}

// MySQLSessions is a table with the sessions of the server: id, db, info (the statement that runs), transaction (1
// while one is open). MySQL's tables of information_schema cannot be read while any session runs a statement with bytes
// that are not UTF-8 (error 3854), and MariaDB's performance_schema is off by default.
func MySQLSessions(t testing.TB) string {
	t.Helper()
	if OnMySQL(t) {
		return `(SELECT t.processlist_id AS id, t.processlist_db AS db, t.processlist_info AS info, e.state = 'ACTIVE' AS transaction
			FROM performance_schema.threads AS t LEFT JOIN performance_schema.events_transactions_current AS e USING (thread_id)
			WHERE t.processlist_id IS NOT NULL) AS sessions`
	}
	return `(SELECT p.id, p.db, p.info, t.trx_id IS NOT NULL AS transaction
		FROM information_schema.processlist AS p LEFT JOIN information_schema.innodb_trx AS t ON t.trx_mysql_thread_id = p.id) AS sessions`
}
