package audit

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/txonce/txonce/dedup"
)

// Claims compares claims with their effects. After an error the report has what was compared before.
func Claims(ctx context.Context, cfg Config) (r Report, err error) {
	if err := cfg.Validate(); err != nil {
		return r, err
	}
	if cfg.Effects == "" {
		return r, errors.New("audit: Config.Effects is required")
	}
	err = cfg.pages(ctx, &r, func(tx *sql.Tx, own []claim) error { return cfg.compare(ctx, tx, own, &r) })
	return r, err
}

// pages calls f with the claims of Consumer and Tenant, each time with those of one snapshot, until Sample are counted
// in r.Checked.
func (c *Config) pages(ctx context.Context, r *Report, f func(tx *sql.Tx, own []claim) error) error {
	p := pace{time.Now(), c}
	sample := c.Sample
	if sample > 0 {
		few, err := c.few(ctx)
		if err != nil {
			return err
		}
		if few {
			sample = 0
		}
	}
	walk := walk{all: sample == 0}
	for sample == 0 || r.Checked < sample && walk.pages < max(readMost*sample/page, pagesAtLeast) {
		walk.next()
		limit := page
		if sample > 0 {
			limit = min(page, sample-r.Checked)
		}
		err := c.snapshot(ctx, func(tx *sql.Tx) error {
			own, err := c.claims(ctx, tx, &walk, limit, r)
			if err != nil {
				return err
			}
			return f(tx, own)
		})
		if err != nil {
			return err
		}
		if walk.whole {
			r.Whole = true
			return nil
		}
		if goOn, err := p.more(ctx, *r); err != nil || !goOn {
			return err
		}
	}
	return nil
}

// readMost limits how many claims a sample reads, in multiples of Sample: most of them may be those of other consumers.
// A small sample reads up to pagesAtLeast pages, because the first one is empty when the walk begins behind the last
// claim.
const (
	readMost     = 20
	pagesAtLeast = 100
)

// few reports whether there are so few claims that all are compared.
func (c *Config) few(ctx context.Context) (bool, error) {
	var n int
	err := c.DB.QueryRowContext(ctx, fmt.Sprintf(`SELECT count(*) FROM (SELECT 1 FROM %s LIMIT %d) AS part`,
		c.table("processed_messages"), c.Sample+1)).Scan(&n)
	if err != nil {
		return false, fmt.Errorf("audit: count claims: %w", err)
	}
	return n <= c.Sample, nil
}

// claim is a row of processed_messages.
type claim struct {
	hash    dedup.KeyHash
	key     dedup.Key
	expires time.Time
	compact bool
}

// claims returns the claims of Consumer and Tenant on the next page, at most limit.
func (c *Config) claims(ctx context.Context, tx *sql.Tx, w *walk, limit int, r *Report) (own []claim, err error) {
	all, err := c.readClaims(ctx, tx, w.after)
	if err != nil {
		return nil, err
	}
	ended := len(all) < page
	if w.wrapped { // up to where it began
		for i := range all {
			if bytes.Compare(all[i].hash[:], w.began[:]) > 0 {
				all, ended = all[:i], false
				w.whole = true
				break
			}
		}
		w.whole = w.whole || ended
	}
	for i, claim := range all {
		w.after = claim.hash
		switch {
		case claim.compact:
			r.Skipped++
		case claim.key.Consumer == c.Consumer && claim.key.Tenant == c.Tenant:
			own = append(own, claim)
		}
		if len(own) == limit && i < len(all)-1 {
			ended, w.whole = false, false
			break
		}
	}
	if ended && !w.wrapped {
		if w.all {
			w.whole = true
		}
		w.wrapped, w.after = true, dedup.KeyHash{}
	}
	return own, nil
}

func (c *Config) readClaims(ctx context.Context, tx *sql.Tx, after dedup.KeyHash) (found []claim, err error) {
	key, param := "key", "?"
	switch c.Dialect {
	case "postgres":
		key, param = "key::text", "$1::uuid"
	case "mysql":
		key = "`key`"
	}
	column, _, _ := strings.Cut(key, "::")
	// The first column has a name of its own: PostgreSQL would take "ORDER BY key" for key::text, and sort the whole
	// table for each page.
	query := fmt.Sprintf(`SELECT %s AS hash, consumer, tenant, id, %s FROM %s WHERE %s > %s ORDER BY %s LIMIT %d`,
		key, c.micros("expires_at"), c.table("processed_messages"), column, param, column, page)
	err = each(ctx, tx, "claims", query, []any{c.hash(after)}, func(rows *sql.Rows) error {
		var raw []byte
		var name, tenant, id sql.NullString
		var expires int64
		if err := rows.Scan(&raw, &name, &tenant, &id, &expires); err != nil {
			return err
		}
		claim := claim{
			key:     dedup.Key{Consumer: name.String, Tenant: tenant.String, ID: id.String},
			expires: time.UnixMicro(expires), compact: !id.Valid,
		}
		claim.hash, err = c.readHash(raw)
		found = append(found, claim)
		return err
	})
	return found, err
}

// compare counts the effects of claims.
func (c *Config) compare(ctx context.Context, tx *sql.Tx, claims []claim, r *Report) error {
	if len(claims) == 0 {
		return nil
	}
	ids := make([]any, len(claims))
	for i := range claims {
		ids[i] = claims[i].key.ID
	}
	effects, err := c.countEffects(ctx, tx, ids)
	if err != nil {
		return err
	}
	for _, claim := range claims {
		n := effects[claim.key.ID]
		r.Checked++
		switch {
		case n == 0 && c.Expect != AtMostOne:
			r.add(Finding{Kind: Lost, Key: claim.key})
		case n > 1 && c.Expect != AtLeastOne:
			r.add(Finding{Kind: Doubled, Key: claim.key, Count: n})
		}
	}
	return nil
}

func (c *Config) countEffects(ctx context.Context, tx *sql.Tx, ids []any) (map[string]int, error) {
	query := strings.ReplaceAll(c.Effects, ":ids", c.list(1, len(ids)))
	args := ids
	if c.Dialect != "postgres" { // each list has parameters of its own
		args = nil
		for range strings.Count(c.Effects, ":ids") {
			args = append(args, ids...)
		}
	}
	rows, err := tx.QueryContext(ctx, query, args...)
	if err != nil {
		return nil, fmt.Errorf("audit: read effects: %w", err)
	}
	defer rows.Close()
	columns, err := rows.Columns()
	if err != nil {
		return nil, fmt.Errorf("audit: read effects: %w", err)
	}
	if len(columns) == 0 || len(columns) > 2 {
		return nil, fmt.Errorf("audit: Config.Effects returns %d columns: want a key, or a key and a number",
			len(columns))
	}
	effects := make(map[string]int, len(ids))
	for rows.Next() {
		var id sql.NullString
		n := 1
		into := []any{&id, &n}
		if err := rows.Scan(into[:len(columns)]...); err != nil {
			return nil, fmt.Errorf("audit: read effects: %w", err)
		}
		effects[id.String] += n
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("audit: read effects: %w", err)
	}
	return effects, nil
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
