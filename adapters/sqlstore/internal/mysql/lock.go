package mysql

import (
	"context"
	"crypto/rand"
	"database/sql"
	"encoding/hex"
	"fmt"
	"math"
	"time"

	"github.com/txonce/txonce/adapters/sqlstore/internal/engine"
	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/internal/claims"
)

// LockKeys inserts a row like a claim does, with the same limited wait, and deletes it again. InnoDB keeps the lock on
// a deleted row until the transaction ends, so other transactions wait, although no row is ever visible.
//
// When the row is gone, InnoDB gives each transaction that waits for it a lock of the gap where it was. Two of these
// would keep each other from inserting, which is a deadlock. So only one transaction at a time waits for the row: the
// others wait for their turn, with GET_LOCK.
//
// GET_LOCK alone would not do: its lock belongs to the session. It would outlive the transaction when the connection
// returns to the pool, and COMMIT does not release it.
func (d *DB) LockKeys(ctx context.Context, tx *sql.Tx, l claims.Lock, wait time.Duration) (err error) {
	server, err := d.describe(ctx, tx)
	if err != nil {
		return err
	}
	turn := "txonce " + hex.EncodeToString(l.Row[:])
	var mine sql.NullBool
	if err := tx.QueryRowContext(ctx, `SELECT GET_LOCK(?, ?)`, turn,
		math.Ceil(wait.Seconds())).Scan(&mine); err != nil {
		return err
	}
	if !mine.Bool {
		return fmt.Errorf("%w: others wait for it, too", dedup.ErrInFlight)
	}
	defer func() {
		ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), engine.AnswerWithin)
		defer cancel()
		if _, release := tx.ExecContext(ending, `DO RELEASE_LOCK(?)`, turn); err == nil {
			err = release
		}
	}()
	var token engine.Token
	rand.Read(token[:]) // never fails
	row := claims.Row{KeyHash: l.Row, Record: dedup.Record{Key: l.Key}}
	if err := d.insert(ctx, &engine.Claim{Tx: tx}, server, token, []claims.Row{row}); err != nil {
		return err
	}
	_, err = tx.ExecContext(ctx, d.Statements().Forget, d.Keys([]dedup.KeyHash{row.KeyHash}))
	return err
}
