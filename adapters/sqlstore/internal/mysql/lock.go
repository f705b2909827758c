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

// LockKeys locks a row that never is: it is inserted as a claim is, whose wait is bounded, and deleted again. InnoDB keeps the lock of
// what a transaction has deleted until its end, whatever that is. GET_LOCK belongs to the session: it would outlive a
// transaction whose connection goes back to the pool, and there is no way to give it back with COMMIT.
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
