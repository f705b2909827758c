package migrations

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"fmt"
)

// sqliteTx is a transaction that was begun with BEGIN IMMEDIATE, which database/sql does not offer.
type sqliteTx struct {
	*sql.Conn
	end     context.Context // for COMMIT and ROLLBACK, which must not be cancelled
	ended   bool
	timeout int // the connection's original busy_timeout
}

func beginSQLite(ctx context.Context, conn *sql.Conn, schema string) (transaction, error) {
	if schema != "" {
		return nil, fmt.Errorf("migrations: SQLite has no schema %q", schema)
	}
	var timeout int
	if err := conn.QueryRowContext(ctx, `PRAGMA busy_timeout`).Scan(&timeout); err != nil {
		return nil, fmt.Errorf("migrations: read busy_timeout: %w", err)
	}
	// Processes that start together wait for each other here. IMMEDIATE takes the lock before anything is read.
	if _, err := conn.ExecContext(ctx, `PRAGMA busy_timeout = 10000`); err != nil {
		return nil, fmt.Errorf("migrations: set busy_timeout: %w", err)
	}
	_, err := conn.ExecContext(ctx, `BEGIN IMMEDIATE`)
	tx := &sqliteTx{Conn: conn, end: context.WithoutCancel(ctx), timeout: timeout}
	if err != nil {
		tx.restore()
		return nil, fmt.Errorf("migrations: begin: %w", err)
	}
	return tx, nil
}

func (t *sqliteTx) installed(ctx context.Context) (yes bool, err error) {
	err = t.QueryRowContext(ctx, `SELECT count(*) FROM sqlite_schema WHERE type = 'table' AND name = 'txonce_schema'`).Scan(&yes)
	return yes, err
}

func (t *sqliteTx) Commit() error {
	_, err := t.ExecContext(t.end, `COMMIT`) // it waits for readers, unless there is a write-ahead log
	if err == nil {
		t.restore()
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
		// a connection in a transaction must not go back to the pool
		_ = t.Raw(func(any) error { return driver.ErrBadConn })
		return err
	}
	t.restore()
	return nil
}

// restore sets the original busy_timeout again. If that fails, the connection must not go back to the pool.
func (t *sqliteTx) restore() {
	t.ended = true
	if _, err := t.ExecContext(t.end, fmt.Sprintf(`PRAGMA busy_timeout = %d`, t.timeout)); err != nil {
		_ = t.Raw(func(any) error { return driver.ErrBadConn })
	}
}
