package testdb

import (
	"database/sql"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/go-sql-driver/mysql"

	"github.com/txonce/txonce/internal/test/matrix"
)

// MySQL creates a database on a real MySQL or MariaDB (OnMySQL says which) and returns its DSN for go-sql-driver/mysql, with the
// driver's defaults. The database is dropped when the test ends. The test fails if a transaction on its tables is still open then.
func MySQL(t testing.TB) (dsn string) {
	t.Helper()
	cfg := mysqlServer(t)
	whole := cfg.FormatDSN()
	cfg.DBName = randomName(t) // needs no quotes, see randomName
	if err := executeMySQL(t, whole, "CREATE DATABASE "+cfg.DBName); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := executeMySQL(t, whole, "SET lock_wait_timeout = 60", "DROP DATABASE "+cfg.DBName); err != nil {
			t.Error(err)
		}
	})
	return cfg.FormatDSN()
}

const (
	absent = "absent"  // the address of a server that internal/test/services could not start
	notRun = "not run" // run.sh lists the tests that say so
)

// OnMySQL reports whether a test of the MySQL dialect runs on MySQL; otherwise it runs on MariaDB. A subtest named mysql or mariadb
// decides itself. Other tests run on MariaDB, or with TXONCE_TEST_MYSQL=mysql on MySQL.
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

// mysqlServer returns the server's configuration without a database.
func mysqlServer(t testing.TB) *mysql.Config {
	t.Helper()
	env, title := "TXONCE_MARIADB", "MariaDB"
	if OnMySQL(t) {
		env, title = "TXONCE_MYSQL", "MySQL"
	}
	address := server(t, env, title)
	if address == absent && !matrix.All() {
		t.Skip(notRun + ": MySQL cannot be had on this machine")
	}
	cfg, err := mysql.ParseDSN(address)
	if err != nil {
		t.Fatalf("%s: %v", env, err)
	}
	answers(t, title, cfg.Net, cfg.Addr)
	cfg.DBName = ""
	return cfg
}

// WithMySQL returns dsn with additional parameters, such as parseTime=true.
func WithMySQL(t testing.TB, dsn, params string) string {
	t.Helper()
	for _, separator := range []string{"?", "&"} {
		if cfg, err := mysql.ParseDSN(dsn + separator + params); err == nil && cfg.DBName != "" {
			return dsn + separator + params
		}
	}
	t.Fatalf("%s: cannot add %s", dsn, params)
	return ""
}

// executeMySQL runs statements on a new connection.
func executeMySQL(t testing.TB, dsn string, statements ...string) error {
	ctx, cancel := cleanUpContext(t)
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
