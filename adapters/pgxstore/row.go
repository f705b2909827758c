package pgxstore

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/internal/claims"
)

// Existing implements claims.Driver. If the claim has not read the state of the session yet, Existing reads it too. If
// Insert has inserted nothing, COMMIT travels along: most callers have nothing to do in the transaction of a duplicate.
// For the others openFor begins another one.
func (c *claim) Existing(ctx context.Context, rows []claims.Row) error {
	keys := make([]dedup.KeyHash, len(rows))
	asked := make(map[dedup.KeyHash]dedup.Key, len(rows))
	for i, row := range rows {
		keys[i] = row.KeyHash
		asked[row.KeyHash] = row.Record.Key
	}
	var row storedRow
	read := func() (err error) {
		stored := row.stored()
		c.Found[stored.Key], err = stored.Claim(asked[stored.Key])
		return err
	}
	sql := &c.store.sql
	b, state := &pgx.Batch{}, ""
	queue := func(sql string, arg any, dest []any) {
		b.Queue(sql, arg).Query(func(results pgx.Rows) error {
			_, err := pgx.ForEachRow(results, dest, read)
			return err
		})
	}
	if len(keys) == 1 {
		queue(sql.ExistingOne, pgUUID(keys[0]), append(row.dest(), &c.standbys, &state))
	} else {
		if !c.noted {
			b.Queue(sql.State).QueryRow(func(row pgx.Row) error { return row.Scan(&c.standbys, &state) })
		}
		queue(sql.Existing, pgUUIDs(keys), row.dest())
	}
	ends := c.tx != nil && c.conn != nil && len(c.Inserted) == 0 && !c.standbys
	switch {
	case ends:
		b.Queue(`commit`)
	case c.short == shortWaitWithin && c.tx != nil:
		b.Queue(sql.FormerWait)
	}
	err := c.bounded(ctx, func(ctx context.Context) error {
		if c.tx == nil {
			return c.conn.SendBatch(ctx, b).Close()
		}
		return c.tx.SendBatch(ctx, b).Close()
	})
	if state != "" {
		c.met(state)
	}
	if err == nil && ends {
		c.tx = nil
	}
	return err
}

// storedRow is a row of processed_messages in types that pgx scans without reflection.
type storedRow struct {
	key                  [16]byte
	fingerprint          pgtype.Int8
	expiresAt            time.Time
	result               []byte
	consumer, tenant, id pgtype.Text
}

// dest returns the destinations for scanning.
func (r *storedRow) dest() []any {
	return []any{&r.key, &r.fingerprint, &r.expiresAt, &r.result, &r.consumer, &r.tenant, &r.id}
}

// stored returns the row. It refers to r, so it is valid until the next row is scanned.
func (r *storedRow) stored() claims.Stored {
	s := claims.Stored{Key: r.key, ExpiresAt: r.expiresAt, Result: r.result}
	if r.fingerprint.Valid {
		s.Fingerprint = &r.fingerprint.Int64
	}
	for _, text := range []struct {
		from *pgtype.Text
		to   **string
	}{{&r.consumer, &s.Consumer}, {&r.tenant, &s.Tenant}, {&r.id, &s.ID}} {
		if text.from.Valid {
			*text.to = &text.from.String
		}
	}
	return s
}
