package sqlstore

import (
	"database/sql"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/internal/claims"
)

// instant scans a time as PostgreSQL keeps it, or the others: in microseconds. NULL is the zero time.
type instant struct{ time.Time }

// Scan implements sql.Scanner.
func (t *instant) Scan(src any) error {
	switch v := src.(type) {
	case nil:
		t.Time = time.Time{}
	case time.Time:
		t.Time = v.UTC()
	case int64:
		t.Time = time.UnixMicro(v).UTC()
	case []byte: // a number that came as text
		n, err := strconv.ParseInt(string(v), 10, 64)
		t.Time = time.UnixMicro(n).UTC()
		return err
	default:
		return fmt.Errorf("sqlstore: a time arrived as %T", src)
	}
	return nil
}

// derived scans 16 bytes, or a UUID as text.
type derived [16]byte

// Scan implements sql.Scanner.
func (d *derived) Scan(src any) error {
	var text string
	switch v := src.(type) {
	case []byte:
		if len(v) == len(d) {
			copy(d[:], v)
			return nil
		}
		text = string(v)
	case string:
		text = v
	case [16]byte:
		*d = v
		return nil
	}
	digits := strings.ReplaceAll(text, "-", "")
	if n, err := hex.Decode(d[:], []byte(digits[:min(len(digits), 2*len(d))])); err != nil || n != len(d) || len(digits) != 2*len(d) {
		return fmt.Errorf("sqlstore: a key arrived as %T %q", src, text)
	}
	return nil
}

// dest is where the columns of a row of processed_messages go.
func dest(r *claims.Stored) []any {
	return []any{(*derived)(&r.Key), &r.Fingerprint, toTime{&r.ExpiresAt}, &r.Result, &r.Consumer, &r.Tenant, &r.ID}
}

// toTime scans what instant scans.
type toTime struct{ to *time.Time }

// Scan implements sql.Scanner.
func (t toTime) Scan(src any) error {
	var at instant
	err := at.Scan(src)
	*t.to = at.Time
	return err
}

// nullable is NULL for the empty string.
func nullable(s string) any {
	if s == "" {
		return nil
	}
	return s
}

// fingerprint is NULL for the zero one.
func fingerprint(f dedup.Fingerprint) any {
	if f.IsZero() {
		return nil
	}
	return f.Int64()
}

// changed reports whether a statement changed a row.
func changed(done sql.Result, err error) (bool, error) {
	if err != nil {
		return false, err
	}
	n, err := done.RowsAffected()
	return n > 0, err
}

// each calls f for each of rows, and closes them.
func each(rows *sql.Rows, err error, f func(*sql.Rows) error) error {
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		if err := f(rows); err != nil {
			return err
		}
	}
	return rows.Err()
}
