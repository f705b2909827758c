package sqlstore

import (
	"context"
	"database/sql"

	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/dedup/driver"
	"github.com/txonce/txonce/internal/operator"
)

// Calls implements driver.CallStore, for package calls.
func (s *Store) Calls() driver.CallKeeper[*sql.Tx] { return callKeeper{s.operator(), s} }

// callKeeper is the driver.CallKeeper of a Store.
type callKeeper struct {
	*operator.Service
	store *Store
}

// DropCall implements driver.CallKeeper.
func (k callKeeper) DropCall(ctx context.Context, tx *sql.Tx, key dedup.Key, token int64) (dropped bool, err error) {
	if err := k.store.locate(ctx, tx); err != nil {
		return false, err
	}
	query, args := operator.DroppedCall(&k.store.db.Tables.Statements().Operator, key, token)
	done, err := tx.ExecContext(ctx, query, args...)
	if err != nil {
		return false, k.store.statementError(err)
	}
	n, err := done.RowsAffected()
	return n == 1, err
}

// adaptedCalls is the driver.CallKeeper of an Adapted.
type adaptedCalls[TTx any] struct {
	callKeeper
	in func(tx TTx, f func(tx *sql.Tx) error) error
}

// DropCall implements driver.CallKeeper.
func (a adaptedCalls[TTx]) DropCall(ctx context.Context, tx TTx, key dedup.Key, token int64) (dropped bool, err error) {
	err = a.in(tx, func(tx *sql.Tx) (err error) {
		dropped, err = a.callKeeper.DropCall(ctx, tx, key, token)
		return err
	})
	return dropped, err
}
