package pgxstore

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/internal/claims"
)

// Existing implements claims.Driver. If the claim has not read the state of the session yet, this query returns it too.
func (c *claim) Existing(ctx context.Context, rows []claims.Row) error {
	keys := make([]dedup.KeyHash, len(rows))
	asked := make(map[dedup.KeyHash]dedup.Key, len(rows))
	for i, row := range rows {
		keys[i] = row.KeyHash
		asked[row.KeyHash] = row.Record.Key
	}
	var row claims.Stored
	read := func() (err error) {
		c.Found[row.Key], err = row.Claim(asked[row.Key])
		return err
	}
	sql := &c.store.sql
	if len(keys) > 1 && c.sessionState != "" {
		results, _ := c.tx.Query(ctx, sql.Existing, pgUUIDs(keys))
		_, err := pgx.ForEachRow(results, dest(&row), read)
		return c.store.claimError(err)
	}
	dest := append(dest(&row), &c.standbys, &c.sessionState)
	if len(keys) == 1 {
		results, _ := c.tx.Query(ctx, sql.ExistingOne, pgUUID(keys[0]))
		_, err := pgx.ForEachRow(results, dest, read)
		return c.store.claimError(err)
	}
	b := &pgx.Batch{}
	for _, key := range keys {
		b.Queue(sql.ExistingOne, pgUUID(key)).Query(func(results pgx.Rows) error {
			_, err := pgx.ForEachRow(results, dest, read)
			return err
		})
	}
	return c.store.claimError(c.tx.SendBatch(ctx, b).Close())
}

// dest returns the destinations for scanning a row of processed_messages.
func dest(r *claims.Stored) []any {
	return []any{&r.Key, &r.Fingerprint, &r.ExpiresAt, &r.Result, &r.Consumer, &r.Tenant, &r.ID}
}
