package pgxstore

import (
	"time"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/internal/claims"
)

// claimArgs returns the parameters of dialect.Postgres.InsertOne for a row. Their types have a plan of their own in
// pgx, which takes less time to encode than pointers and Go's own types do. nil is NULL.
func claimArgs(row *claims.Row, idleLimit any, compact bool) []any {
	rec := &row.Record
	args := []any{pgUUID(row.KeyHash), nil, nil, nil, nil, nil, pgtype.Float8{Float64: rec.Keep().Seconds(), Valid: true}, idleLimit}
	if !rec.Fingerprint.IsZero() {
		args[1] = pgtype.Int8{Int64: rec.Fingerprint.Int64(), Valid: true}
	}
	if !compact {
		args[2], args[4] = rec.Key.Consumer, rec.Key.ID
		if rec.Key.Tenant != "" {
			args[3] = rec.Key.Tenant
		}
	}
	if !rec.Time.IsZero() {
		args[5] = pgtype.Timestamptz{Time: rec.Time, Valid: true}
	}
	return args
}

// claimColumns returns the parameters of dialect.Postgres.Insert for rows of one consumer and window: one array per
// column. pgx encodes their types without reflection. The statement reads zero values as NULL, and a nil array as an
// array of NULLs.
func claimColumns(rows []claims.Row, idleLimit any, compact bool) []any {
	var (
		n            = len(rows)
		keys         = make(pgtype.FlatArray[pgtype.UUID], n)
		fingerprints = make([]int64, n)
		times        = make([]time.Time, n)
		ids, tenants []string
		consumer     *string
	)
	if !compact {
		ids, consumer = make([]string, n), &rows[0].Record.Key.Consumer
	}
	for i := range rows {
		rec := &rows[i].Record
		keys[i] = pgUUID(rows[i].KeyHash)
		fingerprints[i], times[i] = rec.Fingerprint.Int64(), rec.Time
		if compact {
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

// pgUUID wraps a value of 16 bytes so that pgx can send it in every mode. In modes that do not ask the server for the
// types of parameters, which are used behind a pooler, pgx derives the type from the Go type, and it has no type for a
// byte array.
func pgUUID(b [16]byte) pgtype.UUID { return pgtype.UUID{Bytes: b, Valid: true} }

func pgUUIDs(keys []dedup.KeyHash) pgtype.FlatArray[pgtype.UUID] {
	list := make(pgtype.FlatArray[pgtype.UUID], len(keys))
	for i, k := range keys {
		list[i] = pgUUID(k)
	}
	return list
}
