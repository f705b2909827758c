// Package operator implements most of ops.Store and driver.ReplayQueue for all stores: status, actions and requested
// replays. A store adds its connections (Database), its dead letters (Letters) and its outbox.
package operator

import (
	"context"
	"database/sql"
	"encoding/hex"
	"fmt"
	"time"

	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/consumer/ops"
	"github.com/txonce/txonce/internal/dialect"
	"github.com/txonce/txonce/internal/sqlrows"
	"github.com/txonce/txonce/outbox"
)

// Queryer is a *sql.DB or a *sql.Tx.
type Queryer interface {
	sqlrows.Queryer
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
}

// Database runs functions for a Service. what names the work for errors, which Read and Write classify.
type Database interface {
	// Statements returns the statements, after the tables were found.
	Statements(ctx context.Context) (*dialect.Operator, error)
	// Read runs f, which may run again.
	Read(ctx context.Context, what string, f func(ctx context.Context, q Queryer) error) error
	// Write runs f in a transaction at READ COMMITTED, which may be rolled back and run again.
	Write(ctx context.Context, what string, f func(ctx context.Context, q Queryer) error) error
}

// Letters lists dead letters. Stores implement it.
type Letters interface {
	DeadLetters(ctx context.Context, filter consumer.DeadLetterFilter) ([]consumer.DeadLetter, error)
}

// Service implements ops.StatusReader, ops.Keys, ops.Requester and a part of driver.ReplayQueue.
type Service struct {
	DB      Database
	Letters Letters
	Queue   outbox.Operations
}

// Keys implements ops.Store.
func (s *Service) Keys() ops.Keys { return s }

// Outbox implements ops.Store.
func (s *Service) Outbox() outbox.Operations { return s.Queue }

// DeadLetters implements ops.LetterKeeper.
func (s *Service) DeadLetters(ctx context.Context, filter consumer.DeadLetterFilter) ([]consumer.DeadLetter, error) {
	return s.Letters.DeadLetters(ctx, filter)
}

// readRows reads the rows of a query, which may run again.
func readRows[T any](ctx context.Context, db Database, what, query string, args []any,
	scan func(rows *sql.Rows) (T, error),
) (found []T, err error) {
	err = db.Read(ctx, what, func(ctx context.Context, q Queryer) error {
		found = nil
		return sqlrows.Each(ctx, q, query, args, func(rows *sql.Rows) error {
			row, err := scan(rows)
			found = append(found, row)
			return err
		})
	})
	return found, err
}

// instant returns the time of micros since 1970; 0: no time.
func instant(micros int64) time.Time {
	if micros == 0 {
		return time.Time{}
	}
	return time.UnixMicro(micros).UTC()
}

// micros is the inverse of instant.
func micros(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMicro()
}

// id returns the parameter for an ID; nil for the zero ID.
func id(b [16]byte) any {
	if b == ([16]byte{}) {
		return nil
	}
	return hex.EncodeToString(b[:])
}

func parseID(digits string) (b [16]byte, err error) {
	if n, err := hex.Decode(b[:], []byte(digits)); err != nil || n != len(b) {
		return b, fmt.Errorf("operator: an ID arrived as %q", digits)
	}
	return b, nil
}

// affected returns how many rows a statement changed.
func affected(result sql.Result, err error) (int64, error) {
	if err != nil {
		return 0, err
	}
	return result.RowsAffected()
}
