package interleave

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

func (r *result) rows(h *handler) pgx.Rows {
	return &readRows{result: r, types: h.types, at: -1, close: h.opened()}
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
