package pgxstore

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/internal/claims"
)

// Existing implements claims.Driver. If the claim has not read the state of the session yet, this query returns it too. If Insert has
// inserted nothing, COMMIT travels along: most callers have nothing to do in the transaction of a duplicate, and guard.open begins
// another one for the others.
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
	b := &pgx.Batch{}
	queue := func(sql string, arg any, dest []any) {
		b.Queue(sql, arg).Query(func(results pgx.Rows) error {
			_, err := pgx.ForEachRow(results, dest, read)
			return err
		})
	}
	if len(keys) > 1 && c.sessionState != "" {
		queue(sql.Existing, pgUUIDs(keys), dest(&row))
	} else {
		for _, key := range keys {
			queue(sql.ExistingOne, pgUUID(key), append(dest(&row), &c.standbys, &c.sessionState))
		}
	}
	ends := c.tx != nil && c.conn != nil && len(c.Inserted) == 0 && !c.standbys
	switch {
	case ends:
		b.Queue(`commit`)
	case c.restore:
		b.Queue(sql.FormerWait)
	}
	c.restore = false
	err := c.bounded(ctx, func(ctx context.Context) error {
		if c.tx == nil {
			return c.conn.SendBatch(ctx, b).Close()
		}
		return c.tx.SendBatch(ctx, b).Close()
	})
	if err == nil && ends {
		c.tx = nil
	}
	return err
}

// dest returns the destinations for scanning a row of processed_messages.
func dest(r *claims.Stored) []any {
	return []any{&r.Key, &r.Fingerprint, &r.ExpiresAt, &r.Result, &r.Consumer, &r.Tenant, &r.ID}
}
