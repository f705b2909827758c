package pgxstore

import (
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// The types below wrap results in order to note the first error. pgx reports errors when results are read.

type guardedRows struct {
	pgx.Rows
	g *guard
}

func (r guardedRows) Close() {
	r.Rows.Close()
	r.ended()
}

func (r guardedRows) Next() bool {
	ok := r.Rows.Next()
	if !ok {
		r.ended()
	}
	return ok
}

func (r guardedRows) ended() {
	r.g.tagged(r.Rows.CommandTag())
	_ = r.g.note(r.Rows.Err())
}

func (r guardedRows) Err() error { return r.g.note(r.Rows.Err()) }

// Conn returns nil after the handler has returned, as pgx allows: the connection may be in use by others.
func (r guardedRows) Conn() *pgx.Conn {
	if r.g.enter() != nil {
		return nil
	}
	defer r.g.exit()
	r.g.expose()
	return r.Rows.Conn()
}

type guardedRow struct {
	pgx.Row
	g *guard
}

func (r guardedRow) Scan(dest ...any) error { return r.g.note(r.Row.Scan(dest...)) }

type guardedBatch struct {
	pgx.BatchResults
	g *guard
}

func (b guardedBatch) Exec() (pgconn.CommandTag, error) {
	tag, err := b.BatchResults.Exec()
	b.g.tagged(tag)
	return tag, b.g.note(err)
}

func (b guardedBatch) Query() (pgx.Rows, error) {
	rows, err := b.BatchResults.Query()
	return guardedRows{rows, b.g}, b.g.note(err)
}

func (b guardedBatch) QueryRow() pgx.Row { return guardedRow{b.BatchResults.QueryRow(), b.g} }

func (b guardedBatch) Close() error { return b.g.note(b.BatchResults.Close()) }

// failedRows is the result of a statement that was not sent.
type failedRows struct {
	pgx.Rows // nil, because there are no rows
	err      error
}

func (r failedRows) Close()                                       {}
func (r failedRows) Err() error                                   { return r.err }
func (r failedRows) CommandTag() pgconn.CommandTag                { return pgconn.CommandTag{} }
func (r failedRows) FieldDescriptions() []pgconn.FieldDescription { return nil }
func (r failedRows) Next() bool                                   { return false }
func (r failedRows) Scan(...any) error                            { return r.err }
func (r failedRows) Values() ([]any, error)                       { return nil, r.err }
func (r failedRows) RawValues() [][]byte                          { return nil }
func (r failedRows) Conn() *pgx.Conn                              { return nil }
