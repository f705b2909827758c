package main

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"github.com/go-sql-driver/mysql"   // and the driver "mysql"
	_ "github.com/jackc/pgx/v5/stdlib" // the driver "pgx"
	_ "modernc.org/sqlite"             // the driver "sqlite"

	"github.com/txonce/txonce/migrations"
)

// database has the tables of one run: in a SQLite file, a schema of PostgreSQL, or a database of MySQL.
type database struct {
	dialect string // "sqlite", "postgres" or "mysql"
	driver  string // its name in database/sql
	dsn     string // the workers' DSN
	db      *sql.DB
	dir     string // temporary directory; Close removes it
	drop    string // the statement that Close runs to remove the schema or database
}

// openDatabase makes the schema or database with txonce's tables and the application's tables.
func openDatabase(ctx context.Context, o options, name string) (*database, error) {
	d := &database{}
	if err := d.open(ctx, o, name); err != nil {
		return nil, errors.Join(err, d.Close(context.WithoutCancel(ctx)))
	}
	return d, nil
}

func (d *database) open(ctx context.Context, o options, name string) (err error) {
	schema, own := "", "" // own is this process's DSN if it differs from the workers'
	switch o.store {
	case "sqlite":
		if d.dir, err = os.MkdirTemp("", name); err != nil {
			return err
		}
		d.dialect, d.driver, d.dsn = "sqlite", "sqlite", sqliteDSN(filepath.Join(d.dir, "orders.db"))
		own = d.dsn + "&_pragma=busy_timeout(10000)"
		if o.broken != "" {
			d.dsn = own
		}
	case "mysql":
		d.dialect, d.driver = "mysql", "mysql"
		if d.dsn, err = makeMySQL(ctx, o.mysql, name); err != nil {
			return err
		}
		d.drop = `DROP DATABASE IF EXISTS ` + name
	default:
		d.dialect, d.driver, d.dsn = "postgres", "pgx", withSearchPath(o.postgres, name)
		schema = name
	}
	if d.db, err = sql.Open(d.driver, cmp.Or(own, d.dsn)); err != nil {
		return fmt.Errorf("open the %s database: %w", d.dialect, err)
	}
	if err := d.db.PingContext(ctx); err != nil {
		return fmt.Errorf("connect to the %s database: %w", d.dialect, err)
	}
	if schema != "" {
		d.drop = `DROP SCHEMA IF EXISTS ` + schema + ` CASCADE`
	}
	if err := migrations.Apply(ctx, d.db, d.dialect, schema); err != nil {
		return err
	}
	for _, table := range [...]string{
		`CREATE TABLE ledger (order_id varchar(64) NOT NULL, amount bigint NOT NULL)`,
		`CREATE TABLE accounts (customer varchar(64) NOT NULL PRIMARY KEY, balance bigint NOT NULL)`,
		`CREATE INDEX ledger_order ON ledger (order_id)`, // for the auditor
	} {
		if _, err := d.db.ExecContext(ctx, table); err != nil {
			return fmt.Errorf("%s: %w", table, err)
		}
	}
	return nil
}

// Pending returns the number of committed events that are not yet recorded as published.
func (d *database) Pending(ctx context.Context) (n int, err error) {
	err = d.db.QueryRowContext(ctx, `SELECT (SELECT count(*) FROM outbox_messages) + (SELECT count(*) FROM outbox_parked)`).Scan(&n)
	if err != nil {
		return 0, fmt.Errorf("count the pending events: %w", err)
	}
	return n, nil
}

// Trials returns during how many trials of one message a worker was killed, at most. A worker tries a message alone if
// others were killed near it, and a dead letter counts the trials. After three of them the message stays parked.
func (d *database) Trials(ctx context.Context) (most int, err error) {
	err = d.db.QueryRowContext(ctx, `SELECT coalesce(max(times), 0) FROM dead_letters WHERE cause = 'crashed'`).Scan(&most)
	if err != nil {
		return 0, fmt.Errorf("count the trials: %w", err)
	}
	return most, nil
}

// Close removes what openDatabase made.
func (d *database) Close(ctx context.Context) error {
	var errs []error
	if d.drop != "" && d.db != nil {
		if _, err := d.db.ExecContext(ctx, d.drop); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", d.drop, err))
		}
	}
	if d.db != nil {
		errs = append(errs, d.db.Close())
	}
	if d.dir != "" {
		errs = append(errs, os.RemoveAll(d.dir))
	}
	return errors.Join(errs...)
}

// makeMySQL creates a database on the server of dsn and returns the DSN of the new database.
func makeMySQL(ctx context.Context, dsn, name string) (string, error) {
	cfg, err := mysql.ParseDSN(dsn)
	if err != nil {
		return "", fmt.Errorf("-mysql: %w", err)
	}
	db, err := sql.Open("mysql", dsn)
	if err != nil {
		return "", fmt.Errorf("-mysql: %w", err)
	}
	defer db.Close()
	if _, err := db.ExecContext(ctx, `CREATE DATABASE `+name); err != nil {
		return "", fmt.Errorf("connect to the mysql database: %w", err)
	}
	cfg.DBName = name
	cfg.InterpolateParams = true // one round trip per statement instead of two
	return cfg.FormatDSN(), nil
}

// sqliteDSN is for a file that several processes write to. In WAL mode they can read while one writes. BEGIN IMMEDIATE
// takes the write lock at the start; a transaction that reads first could fail later. There is no busy_timeout because
// the Store waits itself, which needs SQLITE_BUSY at once. Programs that use the file without a Store need a
// busy_timeout.
func sqliteDSN(path string) string {
	return (&url.URL{Scheme: "file", Opaque: path}).String() +
		"?_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)&_txlock=immediate"
}

// withSearchPath adds search_path to a DSN, which is a URL or a list of keywords. name needs no quotes.
func withSearchPath(dsn, name string) string {
	switch {
	case !strings.Contains(dsn, "://"):
		return dsn + " search_path=" + name
	case strings.Contains(dsn, "?"):
		return dsn + "&search_path=" + name
	default:
		return dsn + "?search_path=" + name
	}
}
