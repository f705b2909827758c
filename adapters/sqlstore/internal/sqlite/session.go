package sqlite

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/txonce/txonce/adapters/sqlstore/internal/engine"
	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/internal/dialect"
)

// Stamp also reads what the handler may change on its connection, before the handler gets the transaction.
func (d *DB) Stamp(ctx context.Context, t *engine.Transaction) (err error) {
	if t.Proof == "" {
		if t.Claim.Settings, err = settings(ctx, t.Tx); err != nil {
			return err
		}
		if t.Proof, err = d.temporary(ctx, t.Tx); err != nil {
			return err
		}
	}
	_, err = t.Tx.ExecContext(ctx, d.sql.Mark)
	return err
}

// VerifyAndStamp also fails if a handler has left a temporary table, view or trigger: what later handlers of the
// transaction write to a table of that name would be lost. Nothing follows the last handler, so Restore suffices there.
func (d *DB) VerifyAndStamp(ctx context.Context, t *engine.Transaction) error {
	if err := d.Verify(ctx, t); err != nil {
		return err
	}
	temporary, err := d.temporary(ctx, t.Tx)
	if err != nil {
		return err
	}
	if err := d.Stamp(ctx, t); err != nil {
		return err
	}
	if temporary != t.Proof {
		return engine.ErrTemporary
	}
	return nil
}

// Verify releases the savepoint that Stamp set. The savepoint is missing if the claim's transaction has ended. Verify
// also fails if a handler has attached a file that SQLite does not commit together with the claims.
func (d *DB) Verify(ctx context.Context, t *engine.Transaction) error {
	_, err := t.Tx.ExecContext(ctx, d.sql.Proof)
	if code, known := resultCode(err); known && code&0xff == codeError {
		return fmt.Errorf("%w: it is not the transaction that claimed: %w", dedup.ErrTxEnded, err)
	}
	if err == nil {
		err = checkAttached(ctx, t.Tx)
		t.Spoilt = t.Spoilt || err != nil
	}
	return err
}

func (d *DB) Restore(ctx context.Context, t *engine.Transaction) {
	if t.Spoilt || t.Proof != "" && d.changed(ctx, t) {
		d.discard(ctx, t.Conn)
	}
}

// changed reports whether the connection differs from what Stamp found, or cannot be read.
func (d *DB) changed(ctx context.Context, t *engine.Transaction) bool {
	if found, err := settings(ctx, t.Conn); err != nil || found != t.Claim.Settings {
		return true
	}
	found, err := d.temporary(ctx, t.Conn)
	return err != nil || found != t.Proof
}

// discard closes conn, except for an in-memory database, which would end with its connection. It does so although ctx
// may have ended.
func (d *DB) discard(ctx context.Context, conn *sql.Conn) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), d.cfg.ClaimTimeout)
	defer cancel()
	var file string
	if err := conn.QueryRowContext(ctx, d.sql.File).Scan(&file); err != nil || file != "" {
		engine.Discard(conn)
	}
}

// temporary identifies the connection's temporary tables, views and triggers. It does not return "".
func (d *DB) temporary(ctx context.Context, q engine.Queryer) (found string, err error) {
	if err = q.QueryRowContext(ctx, d.sql.TemporaryVersion).Scan(&found); err != nil || found == "0" {
		return found, err
	}
	err = q.QueryRowContext(ctx, d.sql.Temporary).Scan(&found)
	return found, err
}

// settings returns the connection's settings that must be the same for each handler.
func settings(ctx context.Context, q engine.Queryer) (all string, err error) {
	for _, query := range dialect.SQLiteSettings {
		var value string
		if err := q.QueryRowContext(ctx, query).Scan(&value); err != nil {
			return "", err
		}
		all += value + " "
	}
	return all, nil
}
