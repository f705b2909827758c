package pgxstore

import (
	"time"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/internal/claims"
)

// args holds the parameters of a row. Nil pointers are NULL.
type args struct {
	key                  pgtype.UUID
	fingerprint          *int64
	consumer, tenant, id *string
	time                 *time.Time
	seconds              float64
}

func (s *Store) args(row claims.Row) args {
	rec := row.Record
	a := args{key: pgUUID(row.KeyHash), fingerprint: fingerprint(rec.Fingerprint), seconds: rec.Keep().Seconds()}
	if !s.cfg.Compact {
		a.consumer, a.id = &rec.Key.Consumer, &rec.Key.ID
		a.tenant = nonEmpty(rec.Key.Tenant)
	}
	if !rec.Time.IsZero() {
		a.time = &rec.Time
	}
	return a
}

// columns returns the parameters of dialect.Postgres.Insert for rows of one consumer and window: one array per column. pgx
// encodes their types without reflection. The statement reads zero values as NULL, and a nil array as an array of NULLs.
func (s *Store) columns(rows []claims.Row, idleLimit *string) []any {
	var (
		n            = len(rows)
		keys         = make(pgtype.FlatArray[pgtype.UUID], n)
		fingerprints = make([]int64, n)
		times        = make([]time.Time, n)
		ids, tenants []string
		consumer     *string
	)
	if !s.cfg.Compact {
		ids, consumer = make([]string, n), &rows[0].Record.Key.Consumer
	}
	for i := range rows {
		rec := &rows[i].Record
		keys[i] = pgUUID(rows[i].KeyHash)
		fingerprints[i], times[i] = rec.Fingerprint.Int64(), rec.Time
		if s.cfg.Compact {
			continue
		}
		ids[i] = rec.Key.ID
		if rec.Key.Tenant != "" {
			if tenants == nil {
				tenants = make([]string, n)
			}
			tenants[i] = rec.Key.Tenant
		}
	}
	return []any{keys, fingerprints, times, ids, consumer, rows[0].Record.Keep().Seconds(), tenants, idleLimit, n}
}

// pgUUID wraps a value of 16 bytes so that pgx can send it in every mode. In modes that do not ask the server for the types of
// parameters, which are used behind a pooler, pgx derives the type from the Go type, and it has no type for a byte array.
func pgUUID(b [16]byte) pgtype.UUID { return pgtype.UUID{Bytes: b, Valid: true} }

func pgUUIDs(keys []dedup.KeyHash) pgtype.FlatArray[pgtype.UUID] {
	list := make(pgtype.FlatArray[pgtype.UUID], len(keys))
	for i, k := range keys {
		list[i] = pgUUID(k)
	}
	return list
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
