package mysql

import (
	"context"
	"crypto/rand"
	"database/sql"
	"time"

	"github.com/txonce/txonce/adapters/sqlstore/internal/engine"
	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/internal/claims"
)

// LockKeys inserts a row like a claim does, with the same limited wait, and deletes it again. InnoDB keeps the lock on a
// deleted row until the transaction ends, so other transactions wait, although no row is ever visible.
//
// GET_LOCK would not do: its lock belongs to the session. It would outlive the transaction when the connection returns to the
// pool, and COMMIT does not release it.
func (d *DB) LockKeys(ctx context.Context, tx *sql.Tx, l claims.Lock, _ time.Duration) error {
	server, err := d.describe(ctx, tx)
	if err != nil {
		return err
	}
	var mine engine.Token
	rand.Read(mine[:]) // never fails
	row := claims.Row{KeyHash: l.Row, Record: dedup.Record{Key: l.Key}}
	if err := d.insert(ctx, &engine.Claim{Tx: tx}, server, mine, []claims.Row{row}); err != nil {
		return err
	}
	_, err = tx.ExecContext(ctx, d.Statements().Forget, d.Keys([]dedup.KeyHash{row.KeyHash}))
	return err
}
