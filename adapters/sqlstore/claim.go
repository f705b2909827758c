package sqlstore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/internal/claims"
)

// claim is the claims.Driver of one transaction.
type claim struct {
	claims.Claim

	store     *Store
	tx        *sql.Tx
	own       bool // the transaction is the Store's
	idleLimit any  // of the transaction; nil: the caller's own is left alone

	xid       string
	standbys  bool          // COMMIT waits for others, for which a duplicate must wait too
	settings  string        // of the session, before a handler had it
	token     token         // of the rows that were inserted last
	witness   dedup.Derived // one of these
	snapshot  bool          // the transaction sees the database as it was at its beginning
	forgotten time.Time     // all rows forgotten so far had expired by then; zero: none was
}

func (s *Store) newClaim(plan *claims.Plan, tx *sql.Tx) *claim {
	return &claim{Claim: claims.Claim{Plan: plan, Windows: &s.leases, Now: s.now}, store: s, tx: tx}
}

// answers claims and returns the answers. A server that has not refused the claim by the time that a claim may wait, and does not
// answer for long after that, is away.
func (c *claim) answers(ctx context.Context) ([]dedup.Claim, error) {
	if len(c.Plan.Rows) == 0 {
		return nil, nil
	}
	limit := c.store.cfg.InFlightWait + c.store.answerWithin
	limited, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	answers, err := c.Make(limited, c)
	if err != nil && limited.Err() != nil && ctx.Err() == nil {
		return nil, claims.DatabaseErrorf("sqlstore: no answer to a claim for %v: %w", limit, err)
	}
	return answers, err
}

// Insert implements claims.Driver.
func (c *claim) Insert(ctx context.Context, rows []claims.Row) error {
	return c.store.claimError(c.store.db.claim(ctx, c, rows))
}

// Forget implements claims.Driver.
func (c *claim) Forget(ctx context.Context, keys []dedup.Derived) error {
	_, err := c.tx.ExecContext(ctx, c.store.db.statements().Forget, c.store.db.keys(keys))
	return c.store.claimError(err)
}

// Flush implements claims.Driver.
func (c *claim) Flush(ctx context.Context) error { return c.store.claimError(c.store.db.flush(ctx, c)) }

// readInserted reads what a claim returns.
func (c *claim) readInserted(rows *sql.Rows, err error) error {
	return each(rows, err, func(rows *sql.Rows) error {
		var k derived
		var clock instant
		if err := rows.Scan(&k, &clock); err != nil {
			return err
		}
		c.Inserted[dedup.Derived(k)] = true
		if clock.After(c.Clock) {
			c.Clock = clock.Time
		}
		return nil
	})
}

// readForgotten reads up to when keys were forgotten, behind the columns of before.
func (c *claim) readForgotten(row *sql.Row, before ...any) error {
	var forgotten instant
	err := row.Scan(append(before, &forgotten)...)
	if errors.Is(err, sql.ErrNoRows) {
		return fmt.Errorf("%w: the row of table txonce_sweep is missing; undo txonce's migrations and apply them again", dedup.ErrSchema)
	}
	c.forgotten = forgotten.Time
	return err
}

// Forgotten implements claims.Driver. Insert has read already how far was forgotten, unless the transaction could not see it.
func (c *claim) Forgotten(ctx context.Context, consumers []string) (forgotten time.Time, uses map[string][]dedup.WindowUse, err error) {
	var from queryer = c.tx
	if c.snapshot { // older than the claim: another connection sees more
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, c.store.cfg.InFlightWait) // for callers that hold all of the pool's connections
		defer cancel()
		from = c.store.cfg.DB
		if err := c.readForgotten(from.QueryRowContext(ctx, c.store.db.statements().Forgotten)); err != nil {
			return forgotten, nil, c.store.claimError(fmt.Errorf("read the horizon on another connection: %w", err))
		}
	}
	if c.forgotten.IsZero() {
		return forgotten, nil, nil
	}
	uses = make(map[string][]dedup.WindowUse, len(consumers))
	for _, name := range consumers {
		rows, err := from.QueryContext(ctx, c.store.db.statements().Windows, name)
		if err := each(rows, err, func(rows *sql.Rows) error {
			var seconds int64
			var first, until instant
			err := rows.Scan(&seconds, &first, &until)
			uses[name] = append(uses[name], dedup.WindowUse{Window: time.Duration(seconds) * time.Second, FirstRun: first.Time, UsedUntil: until.Time})
			return err
		}); err != nil {
			return forgotten, nil, c.store.claimError(err)
		}
	}
	return c.forgotten, uses, nil
}

// Existing implements claims.Driver.
func (c *claim) Existing(ctx context.Context, rows []claims.Row) error {
	keys := make([]dedup.Derived, len(rows))
	for i, row := range rows {
		keys[i] = row.Derived
	}
	results, err := c.tx.QueryContext(ctx, c.store.db.statements().Existing, c.store.db.keys(keys))
	err = each(results, err, func(results *sql.Rows) error {
		var stored claims.Stored
		if err := results.Scan(dest(&stored)...); err != nil {
			return err
		}
		i := slices.Index(keys, dedup.Derived(stored.Key))
		if i < 0 {
			return fmt.Errorf("sqlstore: read key %x, which was not asked for", stored.Key)
		}
		found, err := stored.Claim(rows[i].Record.Key)
		c.Found[stored.Key] = found
		return err
	})
	return c.store.claimError(err)
}

// pingWait bounds the question whether a database that lets a claim wait answers at all.
const pingWait = time.Second

// waited says why n keys got no answer in time: another transaction holds one of them, or the database is away.
func waited(ctx context.Context, cfg Config, err error, n int) error {
	ctx, cancel := context.WithTimeout(ctx, pingWait)
	defer cancel()
	ping := cfg.DB.PingContext(ctx)
	if stats := cfg.DB.Stats(); ping != nil && (stats.MaxOpenConnections == 0 || stats.InUse < stats.MaxOpenConnections) {
		return claims.DatabaseErrorf("sqlstore: claim: %w (and the database does not answer: %w)", err, ping)
	}
	return fmt.Errorf("%w: one or several of %d, for more than %v", dedup.ErrInFlight, n, cfg.InFlightWait)
}
