package pgxstore

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/internal/claims"
)

// look reads rows into found. How the session is set comes with them, where the claim has not brought it already.
func (c *claim) look(ctx context.Context, tx pgx.Tx, rows []claims.Row, found map[dedup.KeyHash]dedup.Claim) error {
	keys := make(pgtype.FlatArray[pgtype.UUID], len(rows))
	asked := make(map[dedup.KeyHash]dedup.Key, len(rows))
	for i, row := range rows {
		keys[i] = pgUUID(row.KeyHash)
		asked[row.KeyHash] = row.Record.Key
	}
	var row storedRow
	read := func() error {
		if other, readable := row.naturalKey(); readable && other != asked[row.key] {
			return claims.Collision(asked[row.key], other)
		}
		found[row.key] = row.claim()
		return nil
	}
	sql := &c.store.sql
	if len(keys) > 1 && c.session != "" {
		results, _ := tx.Query(ctx, sql.Existing, keys)
		_, err := pgx.ForEachRow(results, row.dest(), read)
		return c.store.claimError(err)
	}
	dest := append(row.dest(), &c.standbys, &c.session)
	if len(keys) == 1 {
		results, _ := tx.Query(ctx, sql.ExistingOne, keys[0])
		_, err := pgx.ForEachRow(results, dest, read)
		return c.store.claimError(err)
	}
	b := &pgx.Batch{}
	for _, key := range keys {
		b.Queue(sql.ExistingOne, key).Query(func(results pgx.Rows) error {
			_, err := pgx.ForEachRow(results, dest, read)
			return err
		})
	}
	return c.store.claimError(tx.SendBatch(ctx, b).Close())
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
