package pgxstore

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/internal/claims"
)

// existing reads rows into found.
func (s *Store) existing(ctx context.Context, tx pgx.Tx, rows []claims.Row, found map[dedup.Derived]dedup.Claim) error {
	keys := make(pgtype.FlatArray[pgtype.UUID], len(rows))
	asked := make(map[dedup.Derived]dedup.Key, len(rows))
	for i, row := range rows {
		keys[i] = pgUUID(row.Derived)
		asked[row.Derived] = row.Record.Key
	}
	var results pgx.Rows
	if len(keys) == 1 {
		results, _ = tx.Query(ctx, s.sql.Lookup, keys[0])
	} else {
		results, _ = tx.Query(ctx, s.sql.Existing, keys)
	}
	var row storedRow
	_, err := pgx.ForEachRow(results, row.dest(), func() error {
		if other, readable := row.naturalKey(); readable && other != asked[row.key] {
			return claims.Collision(asked[row.key], other)
		}
		found[row.key] = row.claim()
		return nil
	})
	return s.claimError(err)
}

// storedRow is a row of processed_messages.
type storedRow struct {
	key                  [16]byte
	fingerprint          *int64
	expiresAt            time.Time
	result               []byte
	consumer, tenant, id *string
}

func (r *storedRow) dest() []any {
	return []any{&r.key, &r.fingerprint, &r.expiresAt, &r.result, &r.consumer, &r.tenant, &r.id}
}

func (r *storedRow) claim() dedup.Claim {
	c := dedup.Claim{ExpiresAt: r.expiresAt, Result: r.result}
	if r.fingerprint != nil {
		c.Fingerprint = dedup.FingerprintFromInt64(*r.fingerprint)
	}
	return c
}

func (r *storedRow) naturalKey() (key dedup.Key, readable bool) {
	if r.consumer == nil || r.id == nil {
		return dedup.Key{}, false
	}
	key = dedup.Key{Consumer: *r.consumer, ID: *r.id}
	if r.tenant != nil {
		key.Tenant = *r.tenant
	}
	return key, true
}
