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
	"github.com/txonce/txonce/internal/shares"
	"github.com/txonce/txonce/internal/sqlrows"
)

// Instant scans a time: a timestamp from PostgreSQL, microseconds from the other databases. NULL becomes the zero time.
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
	case []byte: // a number in text form
		n, err := strconv.ParseInt(string(v), 10, 64)
		t.Time = time.UnixMicro(n).UTC()
		return err
	default:
		return fmt.Errorf("sqlstore: a time arrived as %T", src)
	}
	return nil
}

// KeyHash scans a key of 16 bytes or a UUID in text form.
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
	if n, err := hex.Decode(d[:], []byte(digits[:min(len(digits), 2*len(d))])); err != nil || n != len(d) ||
		len(digits) != 2*len(d) {
		return fmt.Errorf("sqlstore: a key arrived as %T %q", src, text)
	}
	return nil
}

// Dest returns the destinations for scanning a row of processed_messages.
func Dest(r *claims.Stored) []any {
	return []any{(*KeyHash)(&r.Key), &r.Fingerprint, ToTime{&r.ExpiresAt}, &r.Result, &r.Consumer, &r.Tenant, &r.ID}
}

// ToTime scans the same values as Instant into a time.Time.
type ToTime struct{ To *time.Time }

// Scan implements sql.Scanner.
func (t ToTime) Scan(src any) error {
	var at Instant
	err := at.Scan(src)
	*t.To = at.Time
	return err
}

// Nullable returns NULL for the empty string.
func Nullable(s string) any {
	if s == "" {
		return nil
	}
	return s
}

// Fingerprint returns NULL for the zero fingerprint.
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

// Row is a row of a query's result.
type Row = shares.Row

// Rows send a query and call f for each row of the result.
type Rows func(f func(row Row) error) error

// Query returns the rows of a query, which Each sends.
func Query(ctx context.Context, q Queryer, query string, args ...any) Rows {
	return func(f func(row Row) error) error {
		return sqlrows.Each(ctx, q, query, args, func(rows *sql.Rows) error { return f(rows) })
	}
}

// Each sends the query and calls f for each row, until f fails.
func (r Rows) Each(f func(row Row) error) error { return r(f) }

// Column reads the only column of a query.
func Column[T any](r Rows) (values []T, _ error) {
	err := r.Each(func(row Row) error {
		var v T
		err := row.Scan(&v)
		values = append(values, v)
		return err
	})
	return values, err
}

// Exec sends statements that have the same parameters, one after the other.
func Exec(ctx context.Context, q Queryer, statements []string, args ...any) error {
	for _, statement := range statements {
		if _, err := q.ExecContext(ctx, statement, args...); err != nil {
			return err
		}
	}
	return nil
}

// Micros returns microseconds since 1970, and 0 for the zero time.
func Micros(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMicro()
}

// CeilMicros returns d in microseconds, rounded up.
func CeilMicros(d time.Duration) int64 { return int64((d-1)/time.Microsecond) + 1 }

// KeyList returns a JSON list of keys in hexadecimal digits.
func KeyList[K ~[16]byte](ks []K) string {
	list := make([]string, len(ks))
	for i, k := range ks {
		b := [16]byte(k)
		list[i] = hex.EncodeToString(b[:])
	}
	return JSON(list)
}

// MicrosOrNull returns microseconds since 1970, and NULL for the zero time.
func MicrosOrNull(t time.Time) any {
	if t.IsZero() {
		return nil
	}
	return t.UnixMicro()
}

// NaturalKey returns the values of the columns consumer, tenant and id: NULL for each if Compact is set.
func (c *Config) NaturalKey(k dedup.Key) (consumer, tenant, id any) {
	if c.Compact {
		return nil, nil, nil
	}
	return k.Consumer, Nullable(k.Tenant), k.ID
}

// Expired are expired rows, ordered by key.
type Expired struct {
	Keys           []dedup.KeyHash
	Oldest, Latest time.Time
}

// ReadExpired reads expired keys and their expiry times.
func ReadExpired(r Rows) (found Expired, _ error) {
	err := r.Each(func(rows Row) error {
		var k KeyHash
		var expires Instant
		if err := rows.Scan(&k, &expires); err != nil {
			return err
		}
		found.add(dedup.KeyHash(k), expires.Time)
		return nil
	})
	return found, err
}

func (e *Expired) add(k dedup.KeyHash, at time.Time) {
	e.Keys = append(e.Keys, k)
	if e.Latest.IsZero() || at.After(e.Latest) {
		e.Latest = at
	}
	if e.Oldest.IsZero() || at.Before(e.Oldest) {
		e.Oldest = at
	}
}

// JSON encodes a value that always has a JSON form.
func JSON(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("sqlstore: %T as JSON: %v", v, err))
	}
	return string(b)
}

// Archive is the part of a sweep that is archived: one call of Tables.Sweep reads it, and another one deletes it.
type Archive struct {
	Look bool            // take the lease and set Rows to the expired rows of the next part; delete nothing
	Rows []claims.Stored // otherwise: the rows to delete, if they are still expired
}

// Expired returns the rows of a in the form of ReadExpired.
func (a *Archive) Expired() (found Expired) {
	for _, row := range a.Rows {
		found.add(row.Key, row.ExpiresAt)
	}
	return found
}

// Read reads rows of processed_messages into a.
func (a *Archive) Read(r Rows) error {
	return r.Each(func(rows Row) error {
		var row claims.Stored
		err := rows.Scan(Dest(&row)...)
		a.Rows = append(a.Rows, row)
		return err
	})
}
