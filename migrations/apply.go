package migrations

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"strings"
)

// ErrNewer is the error of Apply for a schema that a newer release has changed.
var ErrNewer = errors.New("migrations: schema is newer than this program")

// Apply installs what is missing from db. dialect is "postgres", "sqlite" or "mysql", which is MariaDB's too. On PostgreSQL
// the tables are made in schema, and schema itself where it is missing; empty: in the first schema of search_path. On MySQL
// schema is the name of a database; empty: that of the DSN. SQLite takes no schema.
//
// Each number is a transaction of its own, under a lock, so that any number of nodes may call Apply at once: one of them
// does the work. After a crash the next call goes on where the last COMMIT was; on MySQL, where each statement commits, it
// runs the number's statements again, which does no harm. On a database that is up to date it changes nothing. A database
// with a higher number than the latest known here is left alone. That is no error where the higher number declares that
// programs of this release still work with it, as in a rolling deployment, and else ErrNewer.
func Apply(ctx context.Context, db *sql.DB, dialect, schema string) error {
	all, err := steps(dialect)
	if err != nil {
		return err
	}
	conn, err := db.Conn(ctx)
	if err != nil {
		return fmt.Errorf("migrations: connect: %w", err)
	}
	defer conn.Close()
	var begin func(context.Context, *sql.Conn, string) (transaction, error)
	switch dialect {
	case "postgres":
		begin = beginPostgres
	case "sqlite":
		begin = beginSQLite
	case "mysql":
		begin = beginMySQL
		if schema != "" { // the connection has moved to it
			defer func() { _ = conn.Raw(func(any) error { return driver.ErrBadConn }) }()
		}
	default:
		return fmt.Errorf("migrations: Apply does not know database %q", dialect)
	}
	for {
		done, err := applyNext(ctx, conn, schema, begin, all)
		if err != nil || done {
			return err
		}
	}
}

// transaction is one that holds the lock of Apply.
type transaction interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
	Commit() error
	Rollback() error
	installed(ctx context.Context) (bool, error) // whether there is a table txonce_schema
}

// applyNext applies the first number that is missing.
func applyNext(ctx context.Context, conn *sql.Conn, schema string,
	begin func(context.Context, *sql.Conn, string) (transaction, error), all []step,
) (done bool, err error) {
	tx, err := begin(ctx, conn, schema)
	if err != nil {
		return false, err
	}
	defer tx.Rollback() // does nothing after Commit
	version, worksWith, err := version(ctx, tx)
	switch {
	case err != nil:
		return false, fmt.Errorf("migrations: read the schema's version: %w", err)
	case version >= len(all) && worksWith <= len(all):
		return true, nil
	case version >= len(all):
		return false, fmt.Errorf("%w: it is at version %d and works with programs that know %d or later; the latest known here is %d",
			ErrNewer, version, worksWith, len(all))
	}
	next := all[version]
	if _, err := tx.ExecContext(ctx, next.up); err != nil {
		return false, fmt.Errorf("migrations: apply %s: %w", next.name, err)
	}
	if err := tx.Commit(); err != nil {
		return false, fmt.Errorf("migrations: apply %s: commit: %w", next.name, err)
	}
	return false, nil
}

// version returns the highest number that is installed, and the lowest version that a program must know to work with it.
func version(ctx context.Context, tx transaction) (n, worksWith int, err error) {
	installed, err := tx.installed(ctx)
	if err != nil || !installed {
		return 0, 0, err
	}
	err = tx.QueryRowContext(ctx, `SELECT coalesce(max(version), 0), coalesce(max(works_with), 0) FROM txonce_schema`).Scan(&n, &worksWith)
	return n, worksWith, err
}

type postgresTx struct{ *sql.Tx }

// lockKey is the advisory lock of Apply: "txonce" in ASCII.
const lockKey = 0x74786f6e6365

func beginPostgres(ctx context.Context, conn *sql.Conn, schema string) (_ transaction, err error) {
	// The lock is a statement of its own, and what follows it must see what its last holder committed.
	tx, err := conn.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelReadCommitted})
	if err != nil {
		return nil, fmt.Errorf("migrations: begin: %w", err)
	}
	defer func() {
		if err != nil {
			tx.Rollback()
		}
	}()
	if _, err := tx.ExecContext(ctx, `SELECT pg_advisory_xact_lock($1)`, int64(lockKey)); err != nil {
		return nil, fmt.Errorf("migrations: lock: %w", err)
	}
	if schema == "" {
		return postgresTx{tx}, nil
	}
	var exists bool
	if err := tx.QueryRowContext(ctx, `SELECT EXISTS (SELECT FROM pg_namespace WHERE nspname = $1::text)`, schema).Scan(&exists); err != nil {
		return nil, fmt.Errorf("migrations: look for schema %q: %w", schema, err)
	}
	quoted := `"` + strings.ReplaceAll(schema, `"`, `""`) + `"`
	if !exists {
		if _, err := tx.ExecContext(ctx, `CREATE SCHEMA `+quoted); err != nil {
			return nil, fmt.Errorf("migrations: create schema: %w", err)
		}
	}
	if _, err := tx.ExecContext(ctx, `SELECT set_config('search_path', $1::text, true)`, quoted); err != nil {
		return nil, fmt.Errorf("migrations: set search_path: %w", err)
	}
	return postgresTx{tx}, nil
}

func (t postgresTx) installed(ctx context.Context) (yes bool, err error) {
	err = t.QueryRowContext(ctx, `SELECT to_regclass('txonce_schema') IS NOT NULL`).Scan(&yes)
	return yes, err
}

// sqliteTx is a transaction that was begun by hand, as database/sql has no word for IMMEDIATE.
type sqliteTx struct {
	*sql.Conn
	end     context.Context // of COMMIT and ROLLBACK, which must not be cut short
	ended   bool
	timeout int // busy_timeout as the connection had it
}

func beginSQLite(ctx context.Context, conn *sql.Conn, schema string) (transaction, error) {
	if schema != "" {
		return nil, fmt.Errorf("migrations: SQLite has no schema %q", schema)
	}
	var timeout int
	if err := conn.QueryRowContext(ctx, `PRAGMA busy_timeout`).Scan(&timeout); err != nil {
		return nil, fmt.Errorf("migrations: read busy_timeout: %w", err)
	}
	// The nodes that start at once wait here for one that works; IMMEDIATE takes the lock before anything is read.
	if _, err := conn.ExecContext(ctx, `PRAGMA busy_timeout = 10000`); err != nil {
		return nil, fmt.Errorf("migrations: set busy_timeout: %w", err)
	}
	_, err := conn.ExecContext(ctx, `BEGIN IMMEDIATE`)
	tx := &sqliteTx{Conn: conn, end: context.WithoutCancel(ctx), timeout: timeout}
	if err != nil {
		tx.over()
		return nil, fmt.Errorf("migrations: begin: %w", err)
	}
	return tx, nil
}

func (t *sqliteTx) installed(ctx context.Context) (yes bool, err error) {
	err = t.QueryRowContext(ctx, `SELECT count(*) FROM sqlite_schema WHERE type = 'table' AND name = 'txonce_schema'`).Scan(&yes)
	return yes, err
}

func (t *sqliteTx) Commit() error {
	_, err := t.ExecContext(t.end, `COMMIT`) // without a write-ahead log it waits for readers
	if err == nil {
		t.over()
	}
	return err
}

func (t *sqliteTx) Rollback() error {
	if t.ended {
		return nil
	}
	t.ended = true
	_, err := t.ExecContext(t.end, `ROLLBACK`)
	if err != nil {
		_ = t.Raw(func(any) error { return driver.ErrBadConn }) // the pool must not get it back in a transaction
		return err
	}
	t.over()
	return nil
}

// over gives the connection its busy_timeout back. One that does not take it is not for the pool.
func (t *sqliteTx) over() {
	t.ended = true
	if _, err := t.ExecContext(t.end, fmt.Sprintf(`PRAGMA busy_timeout = %d`, t.timeout)); err != nil {
		_ = t.Raw(func(any) error { return driver.ErrBadConn })
	}
}
