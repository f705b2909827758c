package sqlstore

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"time"

	"github.com/txonce/txonce/adapters/sqlstore/internal/engine"
	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/dedup/driver"
	"github.com/txonce/txonce/internal/claims"
)

// claimDriver implements claims.Driver for one transaction.
type claimDriver struct {
	store *Store
	claim *engine.Claim
}

func (s *Store) newClaim(plan *claims.Plan, tx *sql.Tx) *engine.Claim {
	return &engine.Claim{Claim: claims.Claim{Owner: engine.Database, Plan: plan, Windows: &s.leases, Now: s.now}, Tx: tx}
}

// runClaim claims and returns the answers. If the server neither answers nor refuses the claim for some time after
// ClaimTimeout, runClaim reports the database as unavailable.
func (s *Store) runClaim(ctx context.Context, c *engine.Claim) ([]dedup.Claim, error) {
	if len(c.Plan.Rows) == 0 {
		return nil, nil
	}
	limit := s.cfg.ClaimTimeout + s.answerWithin
	limited, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	answers, err := c.Make(limited, claimDriver{s, c})
	if err != nil && limited.Err() != nil && ctx.Err() == nil {
		return nil, engine.Database.Errorf("sqlstore: no answer to a claim for %v: %w", limit, err)
	}
	return answers, err
}

// Insert implements claims.Driver.
func (d claimDriver) Insert(ctx context.Context, rows []claims.Row) error {
	err := d.store.db.Claims.Claim(ctx, d.claim, rows)
	if err == nil && d.claim.Server != "" {
		d.store.history.Saw(d.claim.Server)
	}
	return d.store.claimError(err)
}

// Forget implements claims.Driver.
func (d claimDriver) Forget(ctx context.Context, keys []dedup.KeyHash) error {
	_, err := d.claim.Tx.ExecContext(ctx, d.store.db.Tables.Statements().Forget, d.store.db.Values.Keys(keys))
	return d.store.claimError(err)
}

// Flush implements claims.Driver.
func (d claimDriver) Flush(ctx context.Context) error {
	return d.store.claimError(d.store.db.Claims.Flush(ctx, d.claim))
}

// Forgotten implements claims.Driver. Insert has already read the horizon, unless the transaction's snapshot is too old
// to see it.
func (d claimDriver) Forgotten(ctx context.Context,
	consumers []string,
) (forgotten time.Time, uses map[string][]driver.WindowUse, err error) {
	var from engine.Queryer = d.claim.Tx
	if d.claim.Snapshot { // the snapshot may be older than the claim: read on another connection
		var cancel context.CancelFunc
		// the callers may hold all of the pool's connections
		ctx, cancel = context.WithTimeout(ctx, d.store.cfg.ClaimTimeout)
		defer cancel()
		from = d.store.cfg.DB
		if err := d.claim.ReadForgotten(from.QueryRowContext(ctx,
			d.store.db.Tables.Statements().Forgotten)); err != nil {
			return forgotten, nil, d.store.claimError(fmt.Errorf("read the horizon on another connection: %w", err))
		}
	}
	if d.claim.Forgotten.IsZero() {
		return forgotten, nil, nil
	}
	uses = make(map[string][]driver.WindowUse, len(consumers))
	for _, name := range consumers {
		if err := engine.Query(ctx, from, d.store.db.Tables.Statements().Windows, name).Each(func(rows engine.Row) error {
			var seconds int64
			var first, until engine.Instant
			err := rows.Scan(&seconds, &first, &until)
			uses[name] = append(uses[name], driver.WindowUse{
				Window:   time.Duration(seconds) * time.Second,
				FirstRun: first.Time, UsedUntil: until.Time,
			})
			return err
		}); err != nil {
			return forgotten, nil, d.store.claimError(err)
		}
	}
	return d.claim.Forgotten, uses, nil
}

// Existing implements claims.Driver.
func (d claimDriver) Existing(ctx context.Context, rows []claims.Row) error {
	keys := make([]dedup.KeyHash, len(rows))
	for i, row := range rows {
		keys[i] = row.KeyHash
	}
	err := engine.Query(ctx, d.claim.Tx, d.store.db.Tables.Statements().Existing, d.store.db.Values.Keys(keys)).Each(func(results engine.Row) error {
		var stored claims.Stored
		if err := results.Scan(engine.Dest(&stored)...); err != nil {
			return err
		}
		i := slices.Index(keys, dedup.KeyHash(stored.Key))
		if i < 0 {
			return fmt.Errorf("sqlstore: read key %x, which was not asked for", stored.Key)
		}
		found, err := stored.Claim(rows[i].Record.Key)
		d.claim.Found[stored.Key] = found
		return err
	})
	return d.store.claimError(err)
}
