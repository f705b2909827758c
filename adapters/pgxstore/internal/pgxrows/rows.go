// Package pgxrows has what the guard of a transaction and Interleave share: results of statements that were not sent,
// or that were read already, and the errors of a handler that uses its transaction wrongly.
package pgxrows

import (
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// ErrReturned is the error of the transaction's methods after the handler has returned.
var ErrReturned = fmt.Errorf("pgxstore: the handler has returned: %w", pgx.ErrTxClosed)

// ErrLeftOpen is not dedup.ErrTxEnded, because the transaction of the claim is still open.
var ErrLeftOpen = errors.New("pgxstore: rolled back: the handler left rows or a batch open: close them before it returns")

// Failed is the result of a statement that was not sent.
type Failed struct {
	pgx.Rows // nil, because there are no rows
	Error    error
}

var (
	_ pgx.Rows = Failed{}
	_ pgx.Row  = Failed{}
)

// Close implements pgx.Rows.
func (r Failed) Close() {}

// Err implements pgx.Rows.
func (r Failed) Err() error { return r.Error }

// CommandTag implements pgx.Rows.
func (r Failed) CommandTag() pgconn.CommandTag { return pgconn.CommandTag{} }

// FieldDescriptions implements pgx.Rows.
func (r Failed) FieldDescriptions() []pgconn.FieldDescription { return nil }

// Next implements pgx.Rows.
func (r Failed) Next() bool { return false }

// Scan implements pgx.Rows and pgx.Row.
func (r Failed) Scan(...any) error { return r.Error }

// Values implements pgx.Rows.
func (r Failed) Values() ([]any, error) { return nil, r.Error }

// RawValues implements pgx.Rows.
func (r Failed) RawValues() [][]byte { return nil }

// Conn implements pgx.Rows.
func (r Failed) Conn() *pgx.Conn { return nil }

// First is the first row of a result as pgx.Row. After an error it leaves the rows open, for the result to close.
type First struct{ Rows pgx.Rows }

// Scan implements pgx.Row.
func (r First) Scan(dest ...any) error {
	if !r.Rows.Next() {
		if err := r.Rows.Err(); err != nil {
			return err
		}
		return pgx.ErrNoRows
	}
	if err := r.Rows.Scan(dest...); err != nil {
		return err
	}
	r.Rows.Close()
	return r.Rows.Err()
}
