package pgxstore

import (
	"context"
	"errors"
	"fmt"

	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/internal/dialect"
)

// HeldKeys implements driver.KeyProber in one round trip. It tries to insert the keys and rolls back.
func (k *keys) HeldKeys(ctx context.Context, keys []dedup.Key) ([]bool, error) {
	if len(keys) == 0 {
		return nil, nil
	}
	derived := make([][16]byte, len(keys))
	for i, key := range keys {
		derived[i] = key.Hash()
	}
	ctx, cancel := context.WithTimeout(ctx, k.cfg.ClaimTimeout)
	defer cancel()
	if err := k.resolve(ctx, k.cfg.Pool); err != nil {
		return nil, err
	}
	conn, err := k.cfg.Pool.Acquire(ctx)
	if err != nil {
		return nil, database.Errorf("pgxstore: held keys: connect: %w", err)
	}
	defer func() { k.release(ctx, conn, err) }()
	results, err := conn.Conn().PgConn().Exec(ctx, "BEGIN ISOLATION LEVEL READ COMMITTED;"+k.sql.HeldKeysOf(derived)+
		";"+k.sql.Held+";ROLLBACK").ReadAll()
	if err != nil {
		return nil, claimError(fmt.Errorf("held keys: %w", err))
	}
	for _, r := range results {
		if len(r.Rows) == 1 {
			return dialect.ReadHeld(derived, string(r.Rows[0][0])), nil
		}
	}
	return nil, errors.New("pgxstore: held keys: no answer")
}
