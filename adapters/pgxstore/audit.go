package pgxstore

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/internal/operator"
)

var _ dedup.AuditLedger[pgx.Tx] = (*Store)(nil)

// RecordHandled implements dedup.AuditLedger.
func (s *Store) RecordHandled(ctx context.Context, tx pgx.Tx, key dedup.Key, position string, keep time.Duration) error {
	if err := s.resolve(ctx, tx); err != nil {
		return err
	}
	query, args := operator.Handled(&s.operations, key, position, keep)
	if _, err := tx.Exec(ctx, query, args...); err != nil {
		return s.stepError("record handled", err)
	}
	return nil
}
