package pgxstore

import (
	"time"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/internal/claims"
)

// args are a row's parameters. Pointers are nil for NULL.
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

// columns are the parameters of dialect.Postgres.Insert for rows of one consumer and window: an array per column, of types
// that pgx encodes without reflection. The statement takes zero for NULL, and a missing array for one of NULLs.
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

// pgUUID is a key or another number of 16 bytes as pgx sends it in every mode: where it does not ask the server for the types
// of parameters, as behind a pooler, it must know them from Go's, and of an array of bytes it does not.
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
