package engine

import (
	"context"
	"database/sql"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/internal/claims"
)

// Instant scans a time as PostgreSQL keeps it, or the others: in microseconds. NULL is the zero time.
type Instant struct{ time.Time }

// Scan implements sql.Scanner.
func (t *Instant) Scan(src any) error {
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

// KeyHash scans 16 bytes, or a UUID as text.
type KeyHash [16]byte

// Scan implements sql.Scanner.
func (d *KeyHash) Scan(src any) error {
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

// Dest is where the columns of a row of processed_messages go.
func Dest(r *claims.Stored) []any {
	return []any{(*KeyHash)(&r.Key), &r.Fingerprint, ToTime{&r.ExpiresAt}, &r.Result, &r.Consumer, &r.Tenant, &r.ID}
}

// ToTime scans what Instant scans.
type ToTime struct{ To *time.Time }

// Scan implements sql.Scanner.
func (t ToTime) Scan(src any) error {
	var at Instant
	err := at.Scan(src)
	*t.To = at.Time
	return err
}

// Nullable is NULL for the empty string.
func Nullable(s string) any {
	if s == "" {
		return nil
	}
	return s
}

// Fingerprint is NULL for the zero one.
func Fingerprint(f dedup.Fingerprint) any {
	if f.IsZero() {
		return nil
	}
	return f.Int64()
}

// Changed reports whether a statement changed a row.
func Changed(done sql.Result, err error) (bool, error) {
	if err != nil {
		return false, err
	}
	n, err := done.RowsAffected()
	return n > 0, err
}

// Rows are what a query returned, or its error.
type Rows struct {
	rows *sql.Rows
	err  error
}

// Query sends a query.
func Query(ctx context.Context, q Queryer, query string, args ...any) Rows {
	rows, err := q.QueryContext(ctx, query, args...) //nolint:rowserrcheck // Each does
	return Rows{rows, err}
}

// Each calls f for each row, and closes them.
func (r Rows) Each(f func(*sql.Rows) error) error {
	if r.err != nil {
		return r.err
	}
	defer r.rows.Close()
	for r.rows.Next() {
		if err := f(r.rows); err != nil {
			return err
		}
	}
	return r.rows.Err()
}

// Micros is 0 for the zero time.
func Micros(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMicro()
}

// CeilMicros rounds up.
func CeilMicros(d time.Duration) int64 { return int64((d-1)/time.Microsecond) + 1 }

// KeyList is a list of keys as hexadecimal digits in JSON.
func KeyList(ks []dedup.KeyHash) string {
	list := make([]string, len(ks))
	for i, k := range ks {
		list[i] = hex.EncodeToString(k[:])
	}
	return JSON(list)
}

// MicrosOrNull is NULL for the zero time.
func MicrosOrNull(t time.Time) any {
	if t.IsZero() {
		return nil
	}
	return t.UnixMicro()
}

// NaturalKey is what the columns consumer, tenant and id say: NULL where they are left out.
func (c *Config) NaturalKey(k dedup.Key) (consumer, tenant, id any) {
	if c.Compact {
		return nil, nil, nil
	}
	return k.Consumer, Nullable(k.Tenant), k.ID
}

// Expired are rows that have expired, in the order of their keys.
type Expired struct {
	Keys           []dedup.KeyHash
	Oldest, Latest time.Time
}

// ReadExpired reads keys, and when they expired.
func ReadExpired(r Rows) (found Expired, _ error) {
	err := r.Each(func(rows *sql.Rows) error {
		var k KeyHash
		var expires Instant
		if err := rows.Scan(&k, &expires); err != nil {
			return err
		}
		found.Keys = append(found.Keys, dedup.KeyHash(k))
		if found.Latest.IsZero() || expires.After(found.Latest) {
			found.Latest = expires.Time
		}
		if found.Oldest.IsZero() || expires.Before(found.Oldest) {
			found.Oldest = expires.Time
		}
		return nil
	})
	return found, err
}

// JSON is for values that always have a JSON form.
func JSON(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("sqlstore: %T as JSON: %v", v, err))
	}
	return string(b)
}
