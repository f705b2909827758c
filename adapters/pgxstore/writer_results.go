package pgxstore

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/txonce/txonce/dedup"
)

// savedResult is a result that waits.
type savedResult struct {
	key    dedup.Key
	result []byte
}

// divisionByZero is how dialect.Postgres.SaveClaimed fails when the key is not claimed.
const divisionByZero = "22012"

const errNotClaimed = "pgxstore: save result: %v is not claimed"

// saveResults writes results in one round trip.
func (w *writer) saveResults(ctx context.Context, tx pgx.Tx, results []savedResult) error {
	if len(results) == 0 {
		return nil
	}
	b := &pgx.Batch{}
	w.queueResults(b, results)
	sent := tx.SendBatch(ctx, b)
	defer sent.Close() // no error can follow the last answer
	return readResults(sent, results)
}

func (w *writer) queueResults(b *pgx.Batch, results []savedResult) {
	for _, r := range results {
		b.Queue(w.sql.SaveClaimed, pgUUID(r.key.Hash()), r.result)
	}
}

func readResults(sent pgx.BatchResults, results []savedResult) error {
	for _, r := range results {
		if _, err := sent.Exec(); sqlState(err) == divisionByZero {
			return fmt.Errorf(errNotClaimed+": %w", r.key, err)
		} else if err != nil {
			return stepError("save result", err)
		}
	}
	return nil
}
