package pgxstore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/internal/claims"
)

// claimAttempts bounds how often a claim is made again because a row vanished under it, or a window ran out.
const claimAttempts = 4

// errAgain says that the claim must be undone and made again.
var errAgain = errors.New("pgxstore: claim again")

// claim is one claim of the records of plan within one transaction.
type claim struct {
	store *Store
	plan  *claims.Plan

	idleLimit *string // of the transaction; nil: the caller's own is left alone

	short     bool // ctx bounds the wait
	inserted  map[dedup.KeyHash]bool
	clock     time.Time // the database's, after the claim
	xid       string
	standbys  bool   // COMMIT waits for synchronous standbys
	session   string // see dialect.Postgres.Session; empty: not read yet
	asked     bool   // the next two are known
	isolation string
	forgotten *time.Time           // all rows forgotten so far had expired by then; nil: none was
	horizons  map[string]time.Time // per consumer; zero: none of its keys can have been forgotten
}

// begin sends BEGIN and the claim in one round trip. The transaction is to be rolled back also after an error, unless it
// is nil.
func (c *claim) begin(ctx context.Context, conn *pgx.Conn) (tx pgx.Tx, err error) {
	b := &pgx.Batch{}
	b.BeginTx(pgx.TxOptions{IsoLevel: c.store.cfg.Isolation})
	err = c.bounded(ctx, func(ctx context.Context) error {
		c.queue(ctx, b, c.plan.Rows)
		results := conn.SendBatch(ctx, b)
		tx = results.Tx()
		_, err := results.Exec() // BEGIN
		return c.read(results, c.plan.Rows, err)
	})
	return tx, err
}

// send sends the claim of rows in a transaction that has begun.
func (c *claim) send(ctx context.Context, tx pgx.Tx, rows []claims.Row) error {
	return c.bounded(ctx, func(ctx context.Context) error {
		b := &pgx.Batch{}
		c.queue(ctx, b, rows)
		return c.read(tx.SendBatch(ctx, b), rows, nil)
	})
}

// bounded runs do, which waits for transactions that hold the claim's keys, for no longer than a claim may wait. The limit is
// the client's: when it passes pgx has the server cancel the statement, and closes the connection. That costs a
// connection where keys collide, and nothing where they do not; lock_timeout, set for the claim and back for the handler,
// costs every claim a statement.
func (c *claim) bounded(ctx context.Context, do func(ctx context.Context) error) error {
	limited, cancel := context.WithTimeout(ctx, c.store.cfg.ClaimTimeout)
	defer cancel()
	err := do(limited)
	if err != nil && limited.Err() != nil && ctx.Err() == nil {
		return c.store.waited(ctx, err)
	}
	return c.store.claimError(err)
}

// queue adds the claim of rows, a statement for each consumer and window among them: there is hardly ever more than one.
// Where a row is old enough to have been forgotten, by this machine's clock and generously, the statement that asks how far
// was forgotten travels with it. Where that clock is slow, the question costs a round trip of its own: see horizon. A wait that
// ctx makes shorter than Config.ClaimTimeout is left to the server, as it is often in vain.
func (c *claim) queue(ctx context.Context, b *pgx.Batch, rows []claims.Row) {
	sql := &c.store.sql
	var wait time.Duration
	if wait, c.short = dedup.ClaimWait(ctx, c.store.cfg.ClaimTimeout); c.short {
		b.Queue(sql.ShortWait, fmt.Sprintf("%dms", max(wait.Milliseconds(), 1)))
		defer func() { b.Queue(sql.FormerWait) }()
	}
	for _, alike := range claims.Alike(rows) {
		if len(alike) == 1 {
			a := c.store.args(alike[0])
			b.Queue(sql.InsertOne, a.key, a.fingerprint, a.consumer, a.tenant, a.id, a.time, a.seconds, c.idleLimit)
		} else {
			b.Queue(sql.Insert, c.store.columns(alike, c.idleLimit)...)
		}
	}
	soon := c.store.now().Add(dedup.MinWindow / 2)
	if c.asked = slices.ContainsFunc(rows, func(row claims.Row) bool { return !claims.Young(row.Record.Time, soon) }); c.asked {
		b.Queue(sql.Sweep)
	}
}

// read takes in the results of what queue queued.
func (c *claim) read(results pgx.BatchResults, rows []claims.Row, err error) error {
	if err == nil && len(rows) > 0 {
		err = c.readAll(results, rows)
	}
	if closed := results.Close(); err == nil {
		err = closed
	}
	return err
}

func (c *claim) readAll(results pgx.BatchResults, rows []claims.Row) error {
	if c.short {
		if _, err := results.Exec(); err != nil {
			return err
		}
	}
	if c.inserted == nil {
		c.inserted = make(map[dedup.KeyHash]bool, len(rows))
	}
	for _, alike := range claims.Alike(rows) {
		read := c.readSome
		if len(alike) == 1 {
			read = c.readOne
		}
		if err := read(results.QueryRow(), alike); err != nil {
			return err
		}
	}
	if !c.asked {
		return nil
	}
	return c.store.sweepError(results.QueryRow().Scan(&c.isolation, &c.forgotten))
}

func (c *claim) readOne(row pgx.Row, rows []claims.Row) error {
	var key [16]byte
	switch err := row.Scan(&key, &c.clock, &c.xid, &c.standbys, &c.session); {
	case errors.Is(err, pgx.ErrNoRows): // known
		return nil
	case err != nil:
		return err
	}
	c.inserted[rows[0].KeyHash] = true
	return nil
}

func (c *claim) readSome(row pgx.Row, rows []claims.Row) error {
	var (
		n    int
		some [][16]byte
	)
	if err := row.Scan(&n, &some, &c.clock, &c.xid, &c.standbys, &c.session); err != nil {
		return err
	}
	if n == len(rows) {
		for i := range rows {
			c.inserted[rows[i].KeyHash] = true
		}
	}
	for _, key := range some {
		c.inserted[key] = true
	}
	return nil
}

// answers finds out what the rows that were there before say, and whether what was inserted is new.
func (c *claim) answers(ctx context.Context, tx pgx.Tx) ([]dedup.Claim, error) {
	if len(c.plan.Rows) == 0 {
		return nil, nil
	}
	existing, err := c.existing(ctx, tx)
	if err != nil {
		return nil, err
	}
	if len(c.inserted) > 0 {
		if !c.store.leases.Cover(c.plan.Windows(), c.clock) {
			return nil, fmt.Errorf("%w: a window's registration ran out before the claim", errAgain)
		}
		if err := c.horizon(ctx, tx); err != nil {
			return nil, err
		}
	}
	found := make([]dedup.Claim, len(c.plan.Rows))
	var unprovable pgtype.FlatArray[pgtype.UUID]
	duplicates := false
	for i, row := range c.plan.Rows {
		rec := row.Record
		if !c.inserted[row.KeyHash] {
			found[i] = existing[row.KeyHash]
			found[i].Verdict = claims.Known(rec, found[i])
			duplicates = true
			continue
		}
		if err := rec.ValidateTime(c.clock, c.store.now()); err != nil {
			return nil, clockError(err)
		}
		found[i] = dedup.Claim{Verdict: dedup.First, Fingerprint: rec.Fingerprint, ExpiresAt: c.expires(rec)}
		if !dedup.Provable(rec.Time, c.horizons[rec.Key.Consumer]) {
			found[i].Verdict = dedup.Unprovable
			unprovable = append(unprovable, pgUUID(row.KeyHash))
		}
	}
	if err := c.settle(ctx, tx, unprovable, duplicates); err != nil {
		return nil, err
	}
	return c.plan.Answers(found), nil
}

// clockError makes a disagreement of clocks Retryable: it says nothing about the message.
func clockError(err error) error {
	if errors.Is(err, dedup.ErrClocks) {
		return databaseError{err}
	}
	return err
}

// settle takes back what must not stay claimed, and makes duplicates as durable as the commits that they report.
func (c *claim) settle(ctx context.Context, tx pgx.Tx, unprovable pgtype.FlatArray[pgtype.UUID], duplicates bool) error {
	if len(unprovable) > 0 {
		if _, err := tx.Exec(ctx, c.store.sql.Forget, unprovable); err != nil {
			return c.store.claimError(err)
		}
	}
	if duplicates && c.standbys {
		if _, err := tx.Exec(ctx, c.store.sql.FlushDuplicate); err != nil {
			return c.store.claimError(err)
		}
	}
	return nil
}

// existing reads the rows that were not inserted. One that vanished was swept since: it is claimed again, as a missing
// row proves nothing.
func (c *claim) existing(ctx context.Context, tx pgx.Tx) (map[dedup.KeyHash]dedup.Claim, error) {
	rows := c.missing(nil)
	if len(rows) == 0 {
		return nil, nil
	}
	existing := make(map[dedup.KeyHash]dedup.Claim, len(rows))
	for range claimAttempts {
		if err := c.look(ctx, tx, rows, existing); err != nil {
			return nil, err
		}
		if rows = c.missing(existing); len(rows) == 0 {
			return existing, nil
		}
		if err := c.send(ctx, tx, rows); err != nil {
			return nil, err
		}
	}
	return nil, databaseError{errors.New("pgxstore: rows vanish between conflict and read, again and again")}
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

// horizon finds out up to when keys may have been forgotten, where that matters to a row. A row so young that no node can
// have forgotten it needs no look, which spares most claims a round trip.
func (c *claim) horizon(ctx context.Context, tx pgx.Tx) error {
	old := func(row claims.Row) bool { return c.inserted[row.KeyHash] && !claims.Young(row.Record.Time, c.clock) }
	if !slices.ContainsFunc(c.plan.Rows, old) {
		return nil
	}
	if !c.asked { // this machine's clock is behind the database's
		if err := tx.QueryRow(ctx, c.store.sql.Sweep).Scan(&c.isolation, &c.forgotten); err != nil {
			return c.store.sweepError(err)
		}
	}
	var q querier = tx
	if c.isolation != "read committed" && c.isolation != "read uncommitted" {
		q = c.store.cfg.Pool
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, c.store.cfg.ClaimTimeout) // for callers that hold all of the pool's connections
		defer cancel()
		if err := q.QueryRow(ctx, c.store.sql.Forgotten).Scan(&c.forgotten); err != nil {
			return c.store.sweepError(err)
		}
	}
	if c.forgotten == nil {
		return nil
	}
	c.horizons = map[string]time.Time{}
	for _, consumer := range c.plan.Consumers() {
		rows, _ := q.Query(ctx, c.store.sql.Windows, consumer)
		uses, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (u dedup.WindowUse, err error) {
			var seconds int64
			err = row.Scan(&seconds, &u.FirstRun, &u.UsedUntil)
			u.Window = time.Duration(seconds) * time.Second
			return u, err
		})
		if err != nil {
			return c.store.claimError(err)
		}
		c.horizons[consumer] = dedup.Horizon(*c.forgotten, uses)
	}
	return nil
}

// querier is a transaction or the pool.
type querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

func (c *claim) expires(rec dedup.Record) time.Time {
	if rec.Time.After(c.clock) {
		return rec.Time.Add(rec.Keep())
	}
	return c.clock.Add(rec.Keep())
}
