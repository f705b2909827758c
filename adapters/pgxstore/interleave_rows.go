package pgxstore

import (
	"errors"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"
)

// result is the result of a statement, read into memory.
type result struct {
	tag    pgconn.CommandTag
	fields []pgconn.FieldDescription
	data   [][][]byte // rows of values
}

func (r *result) rows(b *branch) pgx.Rows {
	return &readRows{result: r, types: b.types, at: -1, close: b.opened()}
}

// readRows is a result as pgx.Rows.
type readRows struct {
	*result
	types  *pgtype.Map
	at     int // the current row
	err    error
	closed bool
	close  func()
}

var _ pgx.Rows = (*readRows)(nil)

func (r *readRows) Close() {
	if !r.closed {
		r.closed = true
		r.close()
	}
}

func (r *readRows) Err() error { return r.err }

func (r *readRows) CommandTag() pgconn.CommandTag {
	if !r.closed || r.err != nil {
		return pgconn.CommandTag{}
	}
	return r.tag
}

func (r *readRows) FieldDescriptions() []pgconn.FieldDescription { return r.fields }

func (r *readRows) Next() bool {
	if r.closed {
		return false
	}
	if r.at++; r.at < len(r.data) {
		return true
	}
	r.Close()
	return false
}

// fail records the first error and closes the rows, as pgx does.
func (r *readRows) fail(err error) error {
	if r.err == nil {
		r.err = err
		r.Close()
	}
	return err
}

func (r *readRows) Scan(dest ...any) error {
	if len(dest) == 1 {
		if scanner, ok := dest[0].(pgx.RowScanner); ok {
			if err := scanner.ScanRow(r); err != nil {
				return r.fail(err)
			}
			return nil
		}
	}
	if err := pgx.ScanRow(r.types, r.fields, r.RawValues(), dest...); err != nil {
		return r.fail(err)
	}
	return nil
}

func (r *readRows) Values() ([]any, error) {
	if r.closed {
		return nil, errors.New("rows is closed")
	}
	values := make([]any, 0, len(r.fields))
	for i, value := range r.RawValues() {
		field := &r.fields[i]
		known, ok := r.types.TypeForOID(field.DataTypeOID)
		switch {
		case value == nil:
			values = append(values, nil)
		case ok:
			decoded, err := known.Codec.DecodeValue(r.types, field.DataTypeOID, field.Format, value)
			if err != nil {
				return nil, r.fail(err)
			}
			values = append(values, decoded)
		case field.Format == pgx.TextFormatCode:
			values = append(values, string(value))
		default:
			values = append(values, append([]byte{}, value...))
		}
	}
	return values, nil
}

func (r *readRows) RawValues() [][]byte {
	if r.closed || r.at < 0 || r.at >= len(r.data) {
		return nil
	}
	return r.data[r.at]
}

// Conn returns nil, as pgx allows: the connection belongs to all handlers.
func (r *readRows) Conn() *pgx.Conn { return nil }

func (r *readRows) TypeMap() *pgtype.Map { return r.types }

// readBatch is the results of a batch as pgx.BatchResults.
type readBatch struct {
	branch  *branch
	queries []*pgx.QueuedQuery
	results []*result
	next    int
	rows    pgx.Rows // of the latest Query
	err     error
	ended   bool
	closed  func()
}

var _ pgx.BatchResults = (*readBatch)(nil)

// take returns the next result.
func (b *readBatch) take() (*result, error) {
	switch {
	case b.err != nil:
		return nil, b.err
	case b.ended:
		return nil, errors.New("batch already closed")
	case b.next == len(b.results):
		return nil, errors.New("no more results in batch")
	}
	if err := b.leave(); err != nil {
		return nil, err
	}
	b.next++
	return b.results[b.next-1], nil
}

// leave closes the rows of the latest Query.
func (b *readBatch) leave() error {
	if b.rows != nil {
		b.rows.Close()
		b.err = b.rows.Err()
		b.rows = nil
	}
	return b.err
}

func (b *readBatch) Exec() (pgconn.CommandTag, error) {
	r, err := b.take()
	if err != nil {
		return pgconn.CommandTag{}, err
	}
	return r.tag, nil
}

func (b *readBatch) Query() (pgx.Rows, error) {
	r, err := b.take()
	if err != nil {
		return failedRows{err: err}, err
	}
	b.rows = r.rows(b.branch)
	return b.rows, nil
}

func (b *readBatch) QueryRow() pgx.Row {
	rows, _ := b.Query()
	return firstRow{rows}
}

// Close calls the callbacks of the results that were not read.
func (b *readBatch) Close() error {
	if b.ended {
		return b.err
	}
	defer func() { // also if a callback panics
		b.ended = true
		b.closed()
	}()
	err := b.leave()
	for err == nil && b.next < len(b.results) {
		if fn := b.queries[b.next].Fn; fn != nil {
			err = fn(b)
		} else {
			_, err = b.Exec()
		}
	}
	if b.err == nil {
		b.err = err
	}
	if b.err == nil {
		_ = b.leave()
	}
	return b.err
}

func (b *readBatch) Tx() pgx.Tx { return nil }
