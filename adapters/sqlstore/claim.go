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

// errUncovered says that the claim must be undone and made again, because a window was registered for too short a time.
var errUncovered = errors.New("sqlstore: a window's registration ran out before the claim")

// claim is one claim of the records of plan within one transaction.
type claim struct {
	store      *Store
	plan       *claims.Plan
	tx         *sql.Tx
	own        bool                        // the transaction is the Store's
	idleLimit  any                         // of the transaction; nil: the caller's own is left alone
	registered map[claims.Window]time.Time // by this transaction: until when

	inserted  map[dedup.KeyHash]bool
	clock     time.Time // the database's, after the claim
	xid       string
	standbys  bool          // COMMIT waits for others, for which a duplicate must wait too
	settings  string        // of the session, before a handler had it
	token     token         // of the rows that were inserted last
	witness   dedup.KeyHash // one of these
	snapshot  bool          // the transaction sees the database as it was at its beginning
	forgotten time.Time     // all rows forgotten so far had expired by then; zero: none was
	uses      map[string][]dedup.WindowUse
}

// make claims and answers. A server that has not refused the claim by the time that a claim may wait, and does not
// answer for long after that, is away.
func (c *claim) make(ctx context.Context) ([]dedup.Claim, error) {
	if len(c.plan.Rows) == 0 {
		return nil, nil
	}
	limit := c.store.cfg.ClaimTimeout + c.store.answerWithin
	limited, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	answers, err := c.answers(limited)
	if err != nil && limited.Err() != nil && ctx.Err() == nil {
		return nil, databaseError{fmt.Errorf("sqlstore: no answer to a claim for %v: %w", limit, err)}
	}
	return answers, err
}

func (c *claim) answers(ctx context.Context) ([]dedup.Claim, error) {
	c.inserted = make(map[dedup.KeyHash]bool, len(c.plan.Rows))
	if err := c.store.db.claim(ctx, c, c.plan.Rows); err != nil {
		return nil, c.store.claimError(err)
	}
	existing, err := c.existing(ctx)
	if err != nil {
		return nil, c.store.claimError(err)
	}
	if len(c.inserted) > 0 && !c.covered() {
		return nil, errUncovered
	}
	if err := c.readWindows(ctx); err != nil {
		return nil, c.store.claimError(err)
	}
	found, unprovable, err := c.verdicts(existing)
	if err != nil {
		return nil, err
	}
	if len(unprovable) > 0 {
		if _, err := c.tx.ExecContext(ctx, c.store.db.statements().Forget, c.store.db.keys(unprovable)); err != nil {
			return nil, c.store.claimError(err)
		}
	}
	if err := c.store.db.settle(ctx, c, len(c.inserted) < len(c.plan.Rows)); err != nil {
		return nil, c.store.claimError(err)
	}
	return c.plan.Answers(found), nil
}

// covered reports whether the claim was registered when it was made.
func (c *claim) covered() bool {
	remembered := make([]claims.Window, 0, 1)
	for _, w := range c.plan.Windows() {
		switch until, here := c.registered[w]; {
		case !here:
			remembered = append(remembered, w)
		case c.clock.After(until):
			return false
		}
	}
	return c.store.leases.Cover(remembered, c.clock)
}

// verdicts says of each row what was there before, and whether what was inserted is new.
func (c *claim) verdicts(existing map[dedup.KeyHash]dedup.Claim) (found []dedup.Claim, unprovable []dedup.KeyHash, err error) {
	found = make([]dedup.Claim, len(c.plan.Rows))
	for i, row := range c.plan.Rows {
		rec := row.Record
		if !c.inserted[row.KeyHash] {
			found[i] = existing[row.KeyHash]
			found[i].Verdict = claims.Known(rec, found[i])
			continue
		}
		if err := rec.ValidateTime(c.clock, c.store.now()); err != nil {
			return nil, nil, clockError(err)
		}
		found[i] = dedup.Claim{Verdict: dedup.First, Fingerprint: rec.Fingerprint, ExpiresAt: c.expires(rec)}
		if !dedup.Provable(rec.Time, dedup.Horizon(c.forgotten, c.uses[rec.Key.Consumer])) {
			found[i].Verdict = dedup.Unprovable
			unprovable = append(unprovable, row.KeyHash)
		}
	}
	return found, unprovable, nil
}

// clockError makes a disagreement of clocks Retryable: it says nothing about the message.
func clockError(err error) error {
	if errors.Is(err, dedup.ErrClocks) {
		return databaseError{err}
	}
	return err
}

func (c *claim) expires(rec dedup.Record) time.Time {
	if rec.Time.After(c.clock) {
		return rec.Time.Add(rec.Keep())
	}
	return c.clock.Add(rec.Keep())
}

// readInserted reads what a claim returns.
func (c *claim) readInserted(rows *sql.Rows, err error) error {
	return each(rows, err, func(rows *sql.Rows) error {
		var k derived
		var clock instant
		if err := rows.Scan(&k, &clock); err != nil {
			return err
		}
		c.inserted[dedup.KeyHash(k)] = true
		if clock.After(c.clock) {
			c.clock = clock.Time
		}
		return nil
	})
}

// young reports that no inserted row can have been forgotten before.
func (c *claim) young() bool {
	for _, row := range c.plan.Rows {
		if c.inserted[row.KeyHash] && !claims.Young(row.Record.Time, c.clock) {
			return false
		}
	}
	return true
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

// readWindows reads what the horizon is made of, where some row was inserted that is old enough to have been forgotten.
// It comes after the claim, in a statement of its own: whatever was forgotten before the claim is known by now.
func (c *claim) readWindows(ctx context.Context) error {
	var consumers []string
	for _, row := range c.plan.Rows {
		if name := row.Record.Key.Consumer; c.inserted[row.KeyHash] && !claims.Young(row.Record.Time, c.clock) && !slices.Contains(consumers, name) {
			consumers = append(consumers, name)
		}
	}
	if len(consumers) == 0 {
		return nil
	}
	var from queryer = c.tx
	if c.snapshot { // older than the claim: another connection sees more
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, c.store.cfg.ClaimTimeout) // for callers that hold all of the pool's connections
		defer cancel()
		from = c.store.cfg.DB
		if err := c.readForgotten(from.QueryRowContext(ctx, c.store.db.statements().Forgotten)); err != nil {
			return fmt.Errorf("read the horizon on another connection: %w", err)
		}
	}
	if c.forgotten.IsZero() {
		return nil
	}
	c.uses = make(map[string][]dedup.WindowUse, len(consumers))
	for _, name := range consumers {
		rows, err := from.QueryContext(ctx, c.store.db.statements().Windows, name)
		if err := each(rows, err, func(rows *sql.Rows) error {
			var seconds int64
			var first, until instant
			err := rows.Scan(&seconds, &first, &until)
			c.uses[name] = append(c.uses[name], dedup.WindowUse{Window: time.Duration(seconds) * time.Second, FirstRun: first.Time, UsedUntil: until.Time})
			return err
		}); err != nil {
			return err
		}
	}
	return nil
}

// existing reads the rows that were not inserted. One that vanished was swept since: it is claimed again, as a missing
// row proves nothing.
func (c *claim) existing(ctx context.Context) (map[dedup.KeyHash]dedup.Claim, error) {
	existing := make(map[dedup.KeyHash]dedup.Claim)
	rows := c.missing(nil)
	for range claimAttempts {
		if len(rows) == 0 {
			return existing, nil
		}
		if err := c.read(ctx, rows, existing); err != nil {
			return nil, err
		}
		if rows = c.missing(existing); len(rows) == 0 {
			return existing, nil
		}
		if err := c.store.db.claim(ctx, c, rows); err != nil {
			return nil, err
		}
		rows = c.missing(existing)
	}
	return nil, errors.New("sqlstore: rows vanish between conflict and read, again and again")
}

// missing returns the rows that were neither inserted nor found.
func (c *claim) missing(existing map[dedup.KeyHash]dedup.Claim) (rows []claims.Row) {
	for _, row := range c.plan.Rows {
		if _, found := existing[row.KeyHash]; !found && !c.inserted[row.KeyHash] {
			rows = append(rows, row)
		}
	}
	return rows
}

// read reads those of rows that stand into found.
func (c *claim) read(ctx context.Context, rows []claims.Row, found map[dedup.KeyHash]dedup.Claim) error {
	keys := make([]dedup.KeyHash, len(rows))
	for i, row := range rows {
		keys[i] = row.KeyHash
	}
	results, err := c.tx.QueryContext(ctx, c.store.db.statements().Existing, c.store.db.keys(keys))
	return each(results, err, func(results *sql.Rows) error {
		var stored storedRow
		if err := results.Scan(stored.dest()...); err != nil {
			return err
		}
		d := dedup.KeyHash(stored.key)
		i := slices.Index(keys, d)
		if i < 0 {
			return fmt.Errorf("sqlstore: read key %x, which was not asked for", d)
		}
		if other, readable := stored.naturalKey(); readable && other != rows[i].Record.Key {
			return claims.Collision(rows[i].Record.Key, other)
		}
		found[d] = stored.claim()
		return nil
	})
}

// pingWait bounds the question whether a database that lets a claim wait answers at all.
const pingWait = time.Second

// waited says why n keys got no answer in time: another transaction holds one of them, or the database is away.
func waited(ctx context.Context, cfg Config, err error, n int) error {
	ctx, cancel := context.WithTimeout(ctx, pingWait)
	defer cancel()
	ping := cfg.DB.PingContext(ctx)
	if stats := cfg.DB.Stats(); ping != nil && (stats.MaxOpenConnections == 0 || stats.InUse < stats.MaxOpenConnections) {
		return databaseError{fmt.Errorf("sqlstore: claim: %w (and the database does not answer: %w)", err, ping)}
	}
	return fmt.Errorf("%w: one or several of %d, for more than %v", dedup.ErrInFlight, n, cfg.ClaimTimeout)
}
