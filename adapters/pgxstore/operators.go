package pgxstore

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/consumer/ops"
	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/internal/operator"
)

var _ ops.Store = operators{}

// operators is the ops.Store of a Store.
type operators struct {
	*operator.Service
	letters *parkingLot
	claimer *claimer // for Probe
	inTx    func(context.Context, []dedup.Record, func(pgx.Tx, []dedup.Claim) error) error
}

// DiscardLetter implements ops.LetterKeeper.
func (o operators) DiscardLetter(ctx context.Context, action ops.ActionID, letter consumer.DeadLetter) error {
	recs, err := o.DiscardRecords(ctx, letter)
	if err != nil {
		return err
	}
	return o.inTx(ctx, recs, func(tx pgx.Tx, claims []dedup.Claim) error {
		query, args := operator.Discarded(&o.letters.operations, action, &letter, claims)
		if _, err := tx.Exec(ctx, query, args...); err != nil {
			return stepError("discard letter", err)
		}
		return o.letters.TakeDeadLetter(ctx, tx, letter)
	})
}
