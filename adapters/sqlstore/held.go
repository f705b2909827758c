package sqlstore

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/internal/dialect"
)

var _ dedup.KeyProber = (*Store)(nil)

// HeldKeys implements dedup.KeyProber. On SQLite no key is ever held: a claim waits for the one transaction that writes.
func (s *Store) HeldKeys(ctx context.Context, keys []dedup.Key) ([]bool, error) {
	derived := make([]dedup.KeyHash, len(keys))
	for i, k := range keys {
		derived[i] = k.Hash()
	}
	prober, ok := s.db.(interface {
		heldKeys(ctx context.Context, s *Store, keys []dedup.KeyHash) ([]bool, error)
	})
	if !ok || len(keys) == 0 {
		return make([]bool, len(keys)), nil
	}
	ctx, cancel := context.WithTimeout(ctx, s.answerWithin)
	defer cancel()
	held, err := prober.heldKeys(ctx, s, derived)
	if err != nil {
		return nil, s.claimError(fmt.Errorf("held keys: %w", err))
	}
	return held, nil
}

func (d *postgres) heldKeys(ctx context.Context, s *Store, keys []dedup.KeyHash) ([]bool, error) {
	t, err := s.begin(ctx, sql.LevelReadCommitted)
	if err != nil {
		return nil, err
	}
	defer t.close() // takes back what it inserts
	plain := make([][16]byte, len(keys))
	for i, k := range keys {
		plain[i] = k
	}
	if _, err := t.tx.ExecContext(ctx, d.sql.HeldKeysOf(plain)); err != nil {
		return nil, err
	}
	var listed string
	if err := t.tx.QueryRowContext(ctx, d.sql.Held).Scan(&listed); err != nil {
		return nil, err
	}
	return dialect.ReadHeld(plain, listed), nil
}

func (d *mysql) heldKeys(ctx context.Context, s *Store, keys []dedup.KeyHash) ([]bool, error) {
	tx, err := s.cfg.DB.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelReadUncommitted})
	if err != nil {
		return nil, err
	}
	defer tx.Rollback()
	read := func(query string) (found map[dedup.KeyHash]bool, err error) {
		found = map[dedup.KeyHash]bool{}
		rows, err := tx.QueryContext(ctx, query, d.keys(keys))
		return found, each(rows, err, func(rows *sql.Rows) error {
			var k derived
			err := rows.Scan(&k)
			found[dedup.KeyHash(k)] = true
			return err
		})
	}
	seen, err := read(d.sql.SeenKeys)
	if err != nil {
		return nil, err
	}
	free, err := read(d.sql.FreeKeys)
	if err != nil {
		return nil, err
	}
	held := make([]bool, len(keys))
	for i, k := range keys {
		held[i] = seen[k] && !free[k]
	}
	return held, nil
}
