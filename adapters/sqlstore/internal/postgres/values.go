package postgres

import (
	"encoding/hex"
	"fmt"
	"strconv"
	"time"

	"github.com/txonce/txonce/adapters/sqlstore/internal/engine"
	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/internal/claims"
)

// row returns the parameters of dialect.Postgres.ClaimOne.
func (d *DB) row(row claims.Row, idleLimit any, wait string) []any {
	rec := row.Record
	consumer, tenant, id := d.cfg.NaturalKey(rec.Key)
	return []any{
		d.Key(row.KeyHash), engine.Fingerprint(rec.Fingerprint), consumer, tenant, id, timestamp(rec.Time),
		rec.Keep().Seconds(), idleLimit, wait,
	}
}

// columns returns the parameters of dialect.Postgres.Claim: an array per column, as text that every driver can send.
func (d *DB) columns(rows []claims.Row, idleLimit any, wait string) []any {
	var arrays [7]array
	for _, row := range rows {
		for i, v := range d.row(row, idleLimit, wait)[:len(arrays)] {
			arrays[i].add(v)
		}
	}
	args := make([]any, 0, len(arrays)+2)
	for i := range arrays {
		args = append(args, arrays[i].String())
	}
	return append(args, idleLimit, wait)
}

func (d *DB) Key(k [16]byte) any { return uuid(k) }

func uuid(k [16]byte) string {
	var b [36]byte
	hex.Encode(b[0:8], k[0:4])
	hex.Encode(b[9:13], k[4:6])
	hex.Encode(b[14:18], k[6:8])
	hex.Encode(b[19:23], k[8:10])
	hex.Encode(b[24:36], k[10:16])
	b[8], b[13], b[18], b[23] = '-', '-', '-', '-'
	return string(b[:])
}

func (d *DB) Keys(ks []dedup.KeyHash) any {
	var a array
	for _, k := range ks {
		a.add(uuid(k))
	}
	return a.String()
}

func (d *DB) Time(t time.Time) any {
	if t.IsZero() {
		return nil
	}
	return t
}

// timestamp returns NULL for times so early that they cannot affect when a row expires.
func timestamp(t time.Time) any {
	if t.Unix() <= 0 {
		return nil
	}
	return t.UTC().Format("2006-01-02 15:04:05.999999Z07:00")
}

// array builds an array in PostgreSQL's text syntax: {"a","b",NULL}.
type array struct{ b []byte }

func (a *array) add(v any) {
	if len(a.b) > 0 {
		a.b = append(a.b, ',')
	}
	switch v := v.(type) {
	case nil:
		a.b = append(a.b, "NULL"...)
	case int64:
		a.b = strconv.AppendInt(a.b, v, 10)
	case float64:
		a.b = strconv.AppendFloat(a.b, v, 'g', -1, 64)
	case []byte:
		a.b = append(a.b, `"\\x`...)
		a.b = hex.AppendEncode(a.b, v)
		a.b = append(a.b, '"')
	case string:
		a.b = append(a.b, '"')
		for i := range len(v) {
			if v[i] == '"' || v[i] == '\\' {
				a.b = append(a.b, '\\')
			}
			a.b = append(a.b, v[i])
		}
		a.b = append(a.b, '"')
	default:
		panic(fmt.Sprintf("sqlstore: %T in an array", v))
	}
}

func (a *array) String() string { return "{" + string(a.b) + "}" }

// parameter returns v as every driver can send it: an array as text.
func parameter(v any) any {
	switch v := v.(type) {
	case []int:
		return arrayOf(v)
	case []int16:
		return arrayOf(v)
	case []int32:
		return arrayOf(v)
	case []int64:
		return arrayOf(v)
	case []float64:
		return textArray(v)
	case []string:
		return textArray(v)
	case [][]byte:
		return textArray(v)
	}
	return v
}

func textArray[T any](values []T) string {
	var a array
	for _, v := range values {
		a.add(v)
	}
	return a.String()
}

// arrayOf returns numbers in PostgreSQL's array syntax.
func arrayOf[N int | int16 | int32 | int64](numbers []N) string {
	var a array
	for _, n := range numbers {
		a.add(int64(n))
	}
	return a.String()
}
