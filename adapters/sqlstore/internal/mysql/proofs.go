package mysql

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"encoding/hex"
	"errors"
	"fmt"

	"github.com/txonce/txonce/adapters/sqlstore/internal/engine"
	"github.com/txonce/txonce/dedup"
)

func (d *DB) Stamp(ctx context.Context, t *engine.Transaction) error {
	if t.Claim.Server == "" { // nothing was claimed
		if err := t.Tx.QueryRowContext(ctx, d.sql.Server).Scan(&t.Claim.Server); err != nil {
			return err
		}
	}
	_, err := t.Tx.ExecContext(ctx, d.sql.Mark)
	return err
}

// VerifyAndStamp releases the savepoint and sets it again: on MariaDB with one statement.
func (d *DB) VerifyAndStamp(ctx context.Context, t *engine.Transaction) error {
	if !valid(t.Conn) {
		return engine.ErrUnready
	}
	if d.server.Load().mariaDB {
		err := d.proven(t.Tx.ExecContext(ctx, d.sql.ProofAndMark))
		if number(err) != syntaxError { // for example under sql_mode ORACLE
			return err
		}
	}
	if err := d.Verify(ctx, t); err != nil {
		return err
	}
	return d.Stamp(ctx, t)
}

// valid asks the driver whether conn takes statements. Without this check, a statement sent while rows are open would
// look like a lost connection.
func valid(conn *sql.Conn) (yes bool) {
	err := conn.Raw(func(c any) error {
		v, asks := c.(driver.Validator)
		yes = !asks || v.IsValid()
		return nil
	})
	return yes && err == nil
}

// Verify releases the savepoint that Stamp set. The savepoint is missing if the claim's transaction has ended.
func (d *DB) Verify(ctx context.Context, t *engine.Transaction) error {
	if !valid(t.Conn) {
		return engine.ErrUnready
	}
	return d.proven(t.Tx.ExecContext(ctx, d.sql.Proof))
}

func (d *DB) proven(_ sql.Result, err error) error {
	if number(err) == noSuchSavepoint {
		return fmt.Errorf("%w: it is not the transaction that claimed: a deadlock rolled it back, DDL or COMMIT committed it, or ROLLBACK ended it; "+
			"return errors of statements instead of swallowing them", dedup.ErrTxEnded)
	}
	return err
}

// Committed checks for the claim's token, because another transaction may have claimed the key after a rollback.
func (d *DB) Committed(ctx context.Context, q engine.Queryer, c *engine.Claim) (committed bool, err error) {
	err = q.QueryRowContext(ctx, d.sql.Stands, d.Key(c.Witness), hex.EncodeToString(c.Token[:])).Scan(&committed)
	return committed, err
}

// CommittedBefore also accepts a row with another token where duplicates write a new token into the row: it may be the
// row of c.
func (d *DB) CommittedBefore(ctx context.Context, tx *sql.Tx, c *engine.Claim) (bool, error) {
	if d.flushes.Load() {
		return true, nil
	}
	return d.Committed(ctx, tx, c)
}

// LateWritesRollBack reports whether autocommit is still off, as Begin set it.
func (d *DB) LateWritesRollBack(ctx context.Context, t *engine.Transaction) bool {
	var on bool
	err := t.Tx.QueryRowContext(ctx, d.sql.Autocommit).Scan(&on)
	return err == nil && !on && len(t.Claim.Inserted) > 0
}

// InProgress reads uncommitted rows.
func (d *DB) InProgress(ctx context.Context, c *engine.Claim) (running bool, err error) {
	err = d.uncommitted(ctx, func(tx *sql.Tx) error {
		running, err = d.Committed(ctx, tx, c)
		return err
	})
	return running, err
}

// uncommitted runs f in a transaction that reads uncommitted rows, and rolls it back. If ROLLBACK fails, the connection
// is closed: database/sql would use it again, for statements that would read uncommitted rows, while f's locks stay.
func (d *DB) uncommitted(ctx context.Context, f func(*sql.Tx) error) (err error) {
	for range 3 { // the pool may return connections that the server has closed
		var conn *sql.Conn
		if conn, err = d.cfg.DB.Conn(ctx); err != nil {
			return err
		}
		var tx *sql.Tx
		tx, err = conn.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelReadUncommitted})
		if err == nil {
			return undone(conn, tx, f)
		}
		conn.Close()
		if !errors.Is(err, driver.ErrBadConn) {
			return err
		}
	}
	return err
}

func undone(conn *sql.Conn, tx *sql.Tx, f func(*sql.Tx) error) error {
	defer conn.Close()
	defer func() {
		if err := tx.Rollback(); err != nil {
			engine.Discard(conn)
		}
	}()
	return f(tx)
}
