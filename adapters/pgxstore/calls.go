package pgxstore

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/dedup/driver"
	"github.com/txonce/txonce/internal/operator"
)

// Calls implements driver.CallStore, for package calls.
func (s *Store) Calls() driver.CallKeeper[pgx.Tx] { return callKeeper{s.service, s.sessions} }

// callKeeper is the driver.CallKeeper of a Store.
type callKeeper struct {
	*operator.Service
	on *sessions
}

// DropCall implements driver.CallKeeper.
func (k callKeeper) DropCall(ctx context.Context, tx pgx.Tx, key dedup.Key, token int64) (dropped bool, err error) {
	if err := k.on.resolve(ctx, tx); err != nil {
		return false, err
	}
	query, args := operator.DroppedCall(&k.on.operations, key, token)
	tag, err := tx.Exec(ctx, query, args...)
	return tag.RowsAffected() == 1, stepError("drop call", err)
}
