package pgxstore

import (
	"context"
	"errors"
	"fmt"

	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/internal/dialect"
)

// HeldKeys implements driver.KeyProber in one round trip. It tries to insert the keys and rolls back.
func (s *Store) HeldKeys(ctx context.Context, keys []dedup.Key) ([]bool, error) {
	if len(keys) == 0 {
		return nil, nil
	}
	derived := make([][16]byte, len(keys))
	for i, k := range keys {
		derived[i] = k.Hash()
	}
	ctx, cancel := context.WithTimeout(ctx, s.cfg.ClaimTimeout)
	defer cancel()
	if err := s.resolve(ctx, s.cfg.Pool); err != nil {
		return nil, err
	}
	conn, err := s.cfg.Pool.Acquire(ctx)
	if err != nil {
		return nil, database.Errorf("pgxstore: held keys: connect: %w", err)
	}
	defer func() { s.release(ctx, conn, err) }()
	results, err := conn.Conn().PgConn().Exec(ctx, "BEGIN ISOLATION LEVEL READ COMMITTED;"+s.sql.HeldKeysOf(derived)+";"+s.sql.Held+";ROLLBACK").ReadAll()
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
