package pgxstore

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/txonce/txonce/dedup"
)

// keys reads, forgets and locks keys without a claim.
type keys struct{ *sessions }

// Lookup implements driver.KeyReader.
func (k *keys) Lookup(ctx context.Context, key dedup.Key) (c dedup.Claim, found bool, err error) {
	if err := key.Validate(); err != nil {
		return dedup.Claim{}, false, err
	}
	if err := k.resolve(ctx, k.cfg.Pool); err != nil {
		return dedup.Claim{}, false, err
	}
	var row storedRow
	rows, _ := k.cfg.Pool.Query(ctx, k.sql.Lookup, pgUUID(key.Hash()))
	_, err = pgx.ForEachRow(rows, row.dest(), func() (err error) {
		found = true
		stored := row.stored()
		c, err = stored.Claim(key)
		return err
	})
	return c, found, claimError(err)
}

// Forget implements dedup.Store.
func (k *keys) Forget(ctx context.Context, tx pgx.Tx, keys ...dedup.Key) error {
	if err := k.resolve(ctx, tx); err != nil {
		return err
	}
	derived := make([]dedup.KeyHash, len(keys))
	for i, key := range keys {
		derived[i] = key.Hash()
	}
	_, err := tx.Exec(ctx, k.sql.Forget, pgUUIDs(derived))
	return stepError("forget", err)
}
