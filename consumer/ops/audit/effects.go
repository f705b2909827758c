package audit

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/internal/sqlrows"
)

// Effects looks for effects without a claim: they were made outside of the transaction of their claim. It reads
// Config.Reverse and the claims in one snapshot.
func Effects(ctx context.Context, cfg Config) (r Report, err error) {
	if err := cfg.Validate(); err != nil {
		return r, err
	}
	if cfg.Reverse == "" {
		return r, errors.New("audit: Config.Reverse is required")
	}
	p := pace{time.Now(), &cfg}
	err = cfg.snapshot(ctx, func(tx *sql.Tx) error {
		ids, whole, err := cfg.reverse(ctx, tx)
		if err != nil {
			return err
		}
		for part := range slices.Chunk(ids, page) {
			keys := make([]dedup.Key, len(part))
			for i, id := range part {
				keys[i] = dedup.Key{Consumer: cfg.Consumer, Tenant: cfg.Tenant, ID: id}
			}
			claimed, err := cfg.claimed(ctx, tx, keys)
			if err != nil {
				return err
			}
			for _, key := range keys {
				r.Checked++
				if !claimed[key.Hash()] {
					r.add(Finding{Kind: Orphaned, Key: key, Count: 1})
				}
			}
			if goOn, err := p.more(ctx, r); err != nil || !goOn {
				return err
			}
		}
		r.Whole = whole
		return nil
	})
	return r, err
}

// reverse reads the keys of effects. whole says that there are no more.
func (c *Config) reverse(ctx context.Context, tx *sql.Tx) (ids []string, whole bool, err error) {
	err = each(ctx, tx, "effects", c.Reverse, nil, func(rows *sql.Rows) error {
		if c.Sample > 0 && len(ids) == c.Sample {
			return errEnough
		}
		var id string
		err := rows.Scan(&id)
		ids = append(ids, id)
		return err
	})
	if errors.Is(err, errEnough) {
		return ids, false, nil
	}
	return ids, err == nil, err
}

// errEnough ends the reading of rows.
var errEnough = errors.New("the sample is complete")

// each calls f for each row of a query. what names the rows for errors.
func each(ctx context.Context, q sqlrows.Queryer, what, query string, args []any, f func(rows *sql.Rows) error) error {
	if err := sqlrows.Each(ctx, q, query, args, f); err != nil {
		return fmt.Errorf("audit: read %s: %w", what, err)
	}
	return nil
}

// claimed returns which of keys have a claim.
func (c *Config) claimed(ctx context.Context, q sqlrows.Queryer, keys []dedup.Key) (map[dedup.KeyHash]bool, error) {
	return c.have(ctx, q, "processed_messages", keys)
}

// parked returns which of keys have a dead letter.
func (c *Config) parked(ctx context.Context, q sqlrows.Queryer, keys []dedup.Key) (map[dedup.KeyHash]bool, error) {
	return c.have(ctx, q, "dead_letters", keys)
}

// have returns which of keys have a row in a table.
func (c *Config) have(ctx context.Context, q sqlrows.Queryer, table string,
	keys []dedup.Key,
) (map[dedup.KeyHash]bool, error) {
	found := make(map[dedup.KeyHash]bool, len(keys))
	if len(keys) == 0 {
		return found, nil
	}
	hashes := make([]any, len(keys))
	for i, key := range keys {
		hashes[i] = c.hash(key.Hash())
	}
	column, text := "key", "key"
	switch c.Dialect {
	case "postgres":
		text = "key::text"
	case "mysql":
		column, text = "`key`", "`key`"
	}
	query := `SELECT ` + text + ` FROM ` + c.table(table) + ` WHERE ` + column + ` IN (` + c.list(1, len(keys)) + `)`
	err := each(ctx, q, table, query, hashes, func(rows *sql.Rows) error {
		var raw []byte
		if err := rows.Scan(&raw); err != nil {
			return err
		}
		hash, err := c.readHash(raw)
		found[hash] = true
		return err
	})
	return found, err
}
