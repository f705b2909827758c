package sqlstore

import (
	"database/sql"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/txonce/txonce/dedup"
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

// storedRow is a row of processed_messages.
type storedRow struct {
	key                  derived
	fingerprint          sql.NullInt64
	expiresAt            instant
	result               []byte
	consumer, tenant, id sql.NullString
}

func (r *storedRow) dest() []any {
	return []any{&r.key, &r.fingerprint, &r.expiresAt, &r.result, &r.consumer, &r.tenant, &r.id}
}

func (r *storedRow) claim() dedup.Claim {
	c := dedup.Claim{ExpiresAt: r.expiresAt.Time, Result: r.result}
	if r.fingerprint.Valid {
		c.Fingerprint = dedup.FingerprintFromInt64(r.fingerprint.Int64)
	}
	return c
}

func (r *storedRow) naturalKey() (key dedup.Key, readable bool) {
	return dedup.Key{Consumer: r.consumer.String, Tenant: r.tenant.String, ID: r.id.String}, r.consumer.Valid && r.id.Valid
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
