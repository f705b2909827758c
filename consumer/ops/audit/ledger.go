package audit

import (
	"context"
	"database/sql"
	"encoding/hex"
	"fmt"
	"strings"

	"github.com/txonce/txonce/dedup"
)

// Ledger looks for keys that several transactions have committed, in the rows of the table audit_ledger that
// consumer.Config.AuditEvery writes. It needs no query for effects. A row is kept for two windows, so Ledger also finds a redelivery that came
// after its claim was forgotten. A letter that was replayed AsNew is found too, if its message was processed before. Config.Sample is ignored:
// the ledger is a sample. A finding whose claim is gone has the hash of its key, in hexadecimal, instead of its ID.
func Ledger(ctx context.Context, cfg Config) (r Report, err error) {
	if err := cfg.Validate(); err != nil {
		return r, err
	}
	err = cfg.snapshot(ctx, func(tx *sql.Tx) error {
		query := fmt.Sprintf(`SELECT count(DISTINCT claim_key) FROM %s WHERE consumer = %s`, cfg.table("audit_ledger"), cfg.param(1))
		if err := tx.QueryRowContext(ctx, query, cfg.Consumer).Scan(&r.Checked); err != nil {
			return fmt.Errorf("audit: count audit_ledger: %w", err)
		}
		found, err := cfg.handledTwice(ctx, tx)
		if err != nil {
			return err
		}
		for _, h := range found {
			key, err := cfg.keyOf(ctx, tx, h.hash)
			if err != nil {
				return err
			}
			r.add(Finding{Kind: Doubled, Key: key, Count: h.times, Where: h.where})
		}
		return nil
	})
	if err == nil && r.Checked == 0 {
		r.Notes = append(r.Notes, "audit_ledger has no row of the consumer: its Config.AuditEvery is 0, or it has processed few messages since")
	}
	return r, err
}

// handled is a key with several rows.
type handled struct {
	hash  dedup.KeyHash
	times int
	where string // positions of messages, at most two
}

func (c *Config) handledTwice(ctx context.Context, tx *sql.Tx) (found []handled, err error) {
	text := "claim_key"
	if c.Dialect == "postgres" {
		text = "claim_key::text"
	}
	query := fmt.Sprintf(`SELECT %s, count(*), min(position), max(position) FROM %s WHERE consumer = %s
GROUP BY claim_key HAVING count(*) > 1 ORDER BY claim_key`, text, c.table("audit_ledger"), c.param(1))
	err = each(ctx, tx, "audit_ledger", query, []any{c.Consumer}, func(rows *sql.Rows) error {
		var raw []byte
		var first, last string
		var h handled
		if err := rows.Scan(&raw, &h.times, &first, &last); err != nil {
			return err
		}
		if h.where = first; last != first {
			h.where += " and " + last
		}
		h.hash, err = c.readHash(raw)
		found = append(found, h)
		return err
	})
	return found, err
}

// keyOf looks up the natural key of a claim. Without one the ID is the hash.
func (c *Config) keyOf(ctx context.Context, tx *sql.Tx, hash dedup.KeyHash) (dedup.Key, error) {
	column, param := "key", c.param(1)
	switch c.Dialect {
	case "postgres":
		param += "::uuid"
	case "mysql":
		column = "`key`"
	}
	key := dedup.Key{Consumer: c.Consumer, ID: hex.EncodeToString(hash[:])}
	var tenant, id sql.NullString
	query := fmt.Sprintf(`SELECT tenant, id FROM %s WHERE %s = %s`, c.table("processed_messages"), column, param)
	err := each(ctx, tx, "claims", query, []any{c.hash(hash)}, func(rows *sql.Rows) error {
		err := rows.Scan(&tenant, &id)
		if id.Valid {
			key.Tenant, key.ID = tenant.String, id.String
		}
		return err
	})
	return key, err
}

// readHash reads a column with the hash of a key, which is a text on PostgreSQL.
func (c *Config) readHash(raw []byte) (hash dedup.KeyHash, err error) {
	if c.Dialect == "postgres" {
		if raw, err = hex.DecodeString(strings.ReplaceAll(string(raw), "-", "")); err != nil {
			return hash, err
		}
	}
	copy(hash[:], raw)
	return hash, nil
}
