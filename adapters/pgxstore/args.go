package pgxstore

import (
	"time"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/internal/claims"
)

// args are a row's parameters. Pointers are nil for NULL.
type args struct {
	key                  [16]byte
	fingerprint          *int64
	consumer, tenant, id *string
	time                 *time.Time
	seconds              float64
}

func (s *Store) args(row claims.Row) args {
	rec := row.Record
	a := args{key: row.Derived, fingerprint: fingerprint(rec.Fingerprint), seconds: rec.Keep().Seconds()}
	if !s.cfg.Compact {
		a.consumer, a.id = &rec.Key.Consumer, &rec.Key.ID
		a.tenant = nonEmpty(rec.Key.Tenant)
	}
	if !rec.Time.IsZero() {
		a.time = &rec.Time
	}
	return a
}

// columns are the parameters of dialect.Postgres.Insert: an array per column, of types that pgx encodes without
// reflection. The statement takes zero for NULL.
func (s *Store) columns(rows []claims.Row) []any {
	var (
		n            = len(rows)
		keys         = make(pgtype.FlatArray[pgtype.UUID], n)
		fingerprints = make([]int64, n)
		consumers    = make([]string, n)
		tenants      = make([]string, n)
		ids          = make([]string, n)
		times        = make([]time.Time, n)
		seconds      = make([]float64, n)
	)
	for i, row := range rows {
		rec := &row.Record
		keys[i] = pgtype.UUID{Bytes: row.Derived, Valid: true}
		fingerprints[i], times[i], seconds[i] = rec.Fingerprint.Int64(), rec.Time, rec.Keep().Seconds()
		if !s.cfg.Compact {
			consumers[i], tenants[i], ids[i] = rec.Key.Consumer, rec.Key.Tenant, rec.Key.ID
		}
	}
	return []any{keys, fingerprints, consumers, tenants, ids, times, seconds}
}

func fingerprint(f dedup.Fingerprint) *int64 {
	if f.IsZero() {
		return nil
	}
	n := f.Int64()
	return &n
}

func nonEmpty(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}
