package testdb

import (
	"database/sql"
	"fmt"
	"testing"

	"github.com/go-sql-driver/mysql"
)

// MySQL creates a database on a real MariaDB and returns its DSN for go-sql-driver/mysql, with the driver's defaults. The
// database is dropped when the test ends. The test fails if a transaction on its tables is still open then.
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

// mysqlServer returns the server's configuration without a database.
func mysqlServer(t testing.TB) *mysql.Config {
	t.Helper()
	cfg, err := mysql.ParseDSN(server(t, "TXONCE_MYSQL", "MariaDB"))
	if err != nil {
		t.Fatalf("TXONCE_MYSQL: %v", err)
	}
	answers(t, "MariaDB", cfg.Net, cfg.Addr)
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
