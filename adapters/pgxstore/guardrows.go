package pgxstore

import (
	"errors"
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/txonce/txonce/adapters/pgxstore/internal/pgxrows"
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
	_ = r.g.answered(r.Rows.CommandTag(), r.Rows.Err())
}

func (r guardedRows) Err() error { return r.g.failures.note(r.Rows.Err()) }

// Conn returns nil after the handler has returned, as pgx allows: the connection may be in use by others.
func (r guardedRows) Conn() *pgx.Conn {
	if r.g.use.enter() != nil {
		return nil
	}
	defer r.g.use.exit()
	r.g.expose()
	return r.Rows.Conn()
}

// guardedRow is the first of the rows, as pgx.Row. A pgx.Row of pgx does not tell the command tag.
type guardedRow struct{ rows guardedRows }

func (r guardedRow) Scan(dest ...any) error {
	defer r.rows.Close()
	if slices.ContainsFunc(dest, func(d any) bool { _, refers := d.(*pgtype.DriverBytes); return refers }) {
		// as pgx does: it would refer to memory that is used again
		return errors.New("cannot scan into *pgtype.DriverBytes from QueryRow")
	}
	return pgxrows.First{Rows: r.rows}.Scan(dest...)
}

type guardedBatch struct {
	pgx.BatchResults
	g *guard
}

func (b guardedBatch) Exec() (pgconn.CommandTag, error) {
	tag, err := b.BatchResults.Exec()
	return tag, b.g.answered(tag, err)
}

func (b guardedBatch) Query() (pgx.Rows, error) {
	rows, err := b.BatchResults.Query()
	return guardedRows{rows, b.g}, b.g.failures.note(err)
}

func (b guardedBatch) QueryRow() pgx.Row {
	rows, _ := b.BatchResults.Query() // its error is also that of rows
	return guardedRow{guardedRows{rows, b.g}}
}

func (b guardedBatch) Close() error { return b.g.failures.note(b.BatchResults.Close()) }

// watched returns a copy of b. Its callbacks let the guard see the results that BatchResults.Close reads.
func watched(g *guard, b *pgx.Batch) *pgx.Batch {
	own, queries := *b, make([]pgx.QueuedQuery, len(b.QueuedQueries))
	own.QueuedQueries = make([]*pgx.QueuedQuery, len(queries))
	for i, q := range b.QueuedQueries {
		queries[i], own.QueuedQueries[i] = *q, &queries[i]
		queries[i].Fn = func(results pgx.BatchResults) error {
			guarded := guardedBatch{results, g}
			if q.Fn != nil {
				return q.Fn(guarded)
			}
			_, err := guarded.Exec()
			return err
		}
	}
	return &own
}
