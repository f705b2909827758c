package sqlstore

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/dedup/driver"
)

var _ driver.KeyProber = (*Store)(nil)

// HeldKeys implements driver.KeyProber. On SQLite no key is ever held, because a claim waits for any writing
// transaction.
func (s *Store) HeldKeys(ctx context.Context, keys []dedup.Key) ([]bool, error) {
	derived := make([]dedup.KeyHash, len(keys))
	for i, k := range keys {
		derived[i] = k.Hash()
	}
	if s.db.KeyProber == nil || len(keys) == 0 {
		return make([]bool, len(keys)), nil
	}
	ctx, cancel := context.WithTimeout(ctx, s.answerWithin)
	defer cancel()
	if err := s.locate(ctx, nil); err != nil {
		return nil, s.claimError(fmt.Errorf("held keys: %w", err))
	}
	held, err := s.db.KeyProber.HeldKeys(ctx, s.runUndone, derived)
	if err != nil {
		return nil, s.claimError(fmt.Errorf("held keys: %w", err))
	}
	return held, nil
}

// runUndone runs f in a transaction, and then rolls it back.
func (s *Store) runUndone(ctx context.Context, f func(ctx context.Context, tx *sql.Tx) error) error {
	t, err := s.begin(ctx, sql.LevelReadCommitted)
	if err != nil {
		return err
	}
	defer t.close()
	return f(ctx, t.Tx)
}
