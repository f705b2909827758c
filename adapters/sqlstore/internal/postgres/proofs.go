package postgres

import (
	"context"
	"database/sql"
	"fmt"
	"strings"

	"github.com/txonce/txonce/adapters/sqlstore/internal/engine"
	"github.com/txonce/txonce/dedup"
)

// The proof of a transaction is its ID, if it has one when the handler gets it. Otherwise the proof is a setting that
// ends with the transaction.
const settingSays = "setting "

// Stamp also sets a savepoint if several handlers may use the transaction: see VerifyAndStamp.
func (d *DB) Stamp(ctx context.Context, t *engine.Transaction) error {
	if t.Claim.XID != "" {
		t.Proof = t.Claim.XID
		if len(t.Claim.Inserted) < 2 {
			return nil
		}
		_, err := t.Tx.ExecContext(ctx, d.SQL.Savepoint)
		t.Marked = err == nil
		return err
	}
	err := t.Tx.QueryRowContext(ctx, d.SQL.Mark).Scan(&t.Proof, &t.Claim.Settings, &t.Claim.Server)
	t.Proof = settingSays + t.Proof
	return err
}

// Verify also resets synchronous_commit if the handler changed it, so that COMMIT is as durable as the claim expected.
// It notes whether other settings of the session changed.
func (d *DB) Verify(ctx context.Context, t *engine.Transaction) error {
	query := d.SQL.ProofByID
	want, bySetting := strings.CutPrefix(t.Proof, settingSays)
	if bySetting {
		query = d.SQL.ProofByMark
	}
	var got, settings string
	err := t.Tx.QueryRowContext(ctx, query).Scan(&got, &settings)
	switch {
	case sqlState(err) == inAbortedTx:
		return engine.ErrSwallowed
	case err != nil:
		return err
	case got != want:
		return errOther
	}
	t.Changed = settings != t.Claim.Settings
	if sync := d.synchronous(t.Claim.Settings); t.Changed && d.synchronous(settings) != sync {
		_, err = t.Tx.ExecContext(ctx, d.SQL.Sync, sync)
	}
	return err
}

// VerifyAndStamp renews the savepoint, which shows that the transaction is the one that claimed. If a handler's
// savepoints outlived it, a later handler could roll back to one, and undo the effects of all handlers between them.
// The other settings of the session are compared before COMMIT only.
func (d *DB) VerifyAndStamp(ctx context.Context, t *engine.Transaction) error {
	if !t.Marked {
		return d.Verify(ctx, t)
	}
	renew := d.SQL.RenewAndProbe
	if t.Temporary {
		renew = d.SQL.RenewSavepoint
	}
	_, err := t.Tx.ExecContext(ctx, renew)
	switch sqlState(err) {
	case inAbortedTx:
		return engine.ErrSwallowed
	case noSavepoint, noTransaction:
		return errOther
	case divisionByZero:
		t.Temporary = true
		_, err = t.Tx.ExecContext(ctx, d.SQL.UndoDivision)
	}
	if err != nil || !t.Temporary {
		return err
	}
	var same bool
	if err = t.Tx.QueryRowContext(ctx, d.SQL.SameTemporary).Scan(&same); err == nil && !same {
		return engine.ErrTemporary
	}
	return err
}

var errOther = fmt.Errorf("%w: it is not the transaction that claimed; return nil to commit, an error to roll back",
	dedup.ErrTxEnded)

// synchronous returns synchronous_commit, the first of a session's settings.
func (d *DB) synchronous(settings string) string {
	sync, _, _ := strings.Cut(settings, " ")
	return sync
}

func (d *DB) Committed(ctx context.Context, q engine.Queryer, c *engine.Claim) (committed bool, err error) {
	err = q.QueryRowContext(ctx, d.SQL.Committed, c.XID).Scan(&committed)
	return committed, err
}

func (d *DB) CommittedBefore(ctx context.Context, tx *sql.Tx, c *engine.Claim) (bool, error) {
	return d.Committed(ctx, tx, c)
}

// after the transaction has ended, each statement commits by itself
func (d *DB) LateWritesRollBack(context.Context, *engine.Transaction) bool { return false }

func (d *DB) InProgress(ctx context.Context, c *engine.Claim) (running bool, err error) {
	err = d.cfg.DB.QueryRowContext(ctx, d.SQL.InProgress, c.XID).Scan(&running)
	return running, err
}
