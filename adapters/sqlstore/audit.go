package sqlstore

import (
	"context"
	"database/sql"
	"time"

	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/internal/operator"
)

var _ dedup.AuditLedger[*sql.Tx] = (*Store)(nil)

// RecordHandled implements dedup.AuditLedger.
func (s *Store) RecordHandled(ctx context.Context, tx *sql.Tx, key dedup.Key, position string, keep time.Duration) error {
	if err := s.locate(ctx, tx); err != nil {
		return err
	}
	query, args := operator.Handled(&s.db.Tables.Statements().Operator, key, position, keep)
	if _, err := tx.ExecContext(ctx, query, args...); err != nil {
		return s.statementError(err)
	}
	return nil
}
