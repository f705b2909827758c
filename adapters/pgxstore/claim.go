package pgxstore

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/dedup/driver"
	"github.com/txonce/txonce/internal/claims"
)

// claim implements claims.Driver for one transaction.
type claim struct {
	claims.Claim

	store *claimer
	conn  *pgx.Conn // Insert begins tx on this connection; nil: tx belongs to the caller
	// unless nil, it must be rolled back even after an error; nil: not begun, or ended because all keys had rows
	tx        pgx.Tx
	idleLimit any // the transaction's limit; nil: the caller's own limit is not changed

	early    bool // the handler runs before the claim, see early.go
	short    shortWait
	xid      string
	standbys bool         // COMMIT waits for synchronous standbys
	session  sessionState // without a synchronous_commit: not read yet
	noted    bool         // the server of the transaction is noted: behind a pooler each transaction may be on another
	horizon  horizon
}

// shortWait says how the server limits the wait for other transactions, if ctx ends before Config.ClaimTimeout.
type shortWait int

const (
	noShortWait     shortWait = iota
	shortWaitAround           // the statements of ShortWait and FormerWait surround the claim
	shortWaitWithin           // InsertOneShort limits it
)

// Insert implements claims.Driver. The first Insert of InTx sends BEGIN and the claim in one round trip. Without rows
// it sends BEGIN and reads the state of the session.
func (c *claim) Insert(ctx context.Context, rows []claims.Row) error {
	err := c.bounded(ctx, func(ctx context.Context) error {
		if len(rows) == 0 {
			return c.open(ctx)
		}
		b := &pgx.Batch{}
		if c.tx != nil {
			c.queue(ctx, b, rows)
			return c.read(c.tx.SendBatch(ctx, b), rows, nil)
		}
		c.queueBegin(b)
		c.queue(ctx, b, rows)
		results, err := c.begin(ctx, b)
		return c.read(results, rows, err)
	})
	if err == nil && c.conn == nil { // InTx checks more of the session, see fits
		err = c.store.durable(c.session, c.standbys)
	}
	return err
}

// fits returns nil if the session of c is as it must be. After an error, the connection must be discarded.
func (c *claim) fits(ctx context.Context) error {
	if c.tx == nil {
		// all keys had rows, and the claim's transaction has ended; openFor checks the one that the handler may begin
		if err := c.store.durable(c.session, c.standbys); err != nil {
			return fmt.Errorf("%w: %w", claims.ErrAgain, err) // a changed session may be to blame
		}
		return nil
	}
	if err := c.store.compare(ctx, c.conn, &c.session); err != nil {
		return err
	}
	return c.store.durable(c.session, c.standbys)
}

// bounded calls do and ends its wait for transactions that hold the claim's keys after ClaimTimeout. The client
// enforces the limit: when it expires, pgx asks the server to cancel the statement and closes the connection. This
// costs a connection when keys collide, and nothing otherwise. Setting lock_timeout for each claim and restoring it for
// the handler would cost about 10 µs.
func (c *claim) bounded(ctx context.Context, do func(ctx context.Context) error) error {
	limited, cancel := context.WithTimeout(ctx, c.store.cfg.ClaimTimeout)
	defer cancel()
	err := do(limited)
	if err != nil && limited.Err() != nil && ctx.Err() == nil {
		return c.store.waited(ctx, err)
	}
	return claimError(err)
}

// queue adds the statements that claim rows: one for each combination of consumer and window, usually one in total. If
// a row is so old that it may have been forgotten, the query for the horizon is sent along. This check uses this
// machine's clock with a generous margin. If that clock is slow, Forgotten queries the horizon in a separate round
// trip. If ctx ends before Config.ClaimTimeout, the server limits the wait, because such waits often time out and this
// way the connection stays open.
func (c *claim) queue(ctx context.Context, b *pgx.Batch, rows []claims.Row) {
	sql := &c.store.sql
	wait, short := driver.ClaimWait(ctx, c.store.cfg.ClaimTimeout)
	limit := ""
	if short {
		limit = fmt.Sprintf("%dms", max(wait.Milliseconds(), 1))
	}
	switch {
	case !short:
		c.short = noShortWait
	case len(rows) == 1 && c.conn != nil: // a caller may go on with its own transaction after an error
		c.short = shortWaitWithin
	default:
		c.short = shortWaitAround
		b.Queue(sql.ShortWait, limit)
		defer func() { b.Queue(sql.FormerWait) }()
	}
	for _, alike := range claims.Alike(rows) {
		if len(alike) == 1 {
			args := claimArgs(&alike[0], c.idleLimit, c.store.cfg.Compact)
			if c.short == shortWaitWithin {
				b.Queue(sql.InsertOneShort, append(args, limit)...)
			} else {
				b.Queue(sql.InsertOne, args...)
			}
		} else {
			b.Queue(sql.Insert, claimColumns(alike, c.idleLimit, c.store.cfg.Compact)...)
		}
	}
	soon := c.store.now().Add(dedup.MinWindow / 2)
	if c.horizon.asked = slices.ContainsFunc(rows,
		func(row claims.Row) bool { return !claims.Young(row.Record.Time, soon) }); c.horizon.asked {
		b.Queue(sql.Sweep)
	}
}

// read reads the results of the statements that queue added.
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
	if c.short == shortWaitAround {
		if _, err := results.Exec(); err != nil {
			return err
		}
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
	if !c.horizon.asked {
		return nil
	}
	return c.horizon.read(results.QueryRow())
}

func (c *claim) readOne(row pgx.Row, rows []claims.Row) error {
	var (
		key   [16]byte
		state string
	)
	dest := []any{&key, &c.Clock, &c.xid, &c.standbys, &state, nil}
	if c.short != shortWaitWithin {
		dest = dest[:5]
	}
	switch err := row.Scan(dest...); {
	case errors.Is(err, pgx.ErrNoRows): // the key has a row already
		return nil
	case err != nil:
		return err
	}
	c.Inserted[rows[0].KeyHash] = true
	c.met(state)
	return nil
}

// met notes the state of the session that the claim has found.
func (c *claim) met(state string) {
	c.session, c.noted = stateOf(state), true
	if c.session.server != "" {
		c.store.history.Saw(c.session.server)
	}
}

func (c *claim) readSome(row pgx.Row, rows []claims.Row) error {
	var (
		n     int
		some  [][16]byte
		state string
	)
	if err := row.Scan(&n, &some, &c.Clock, &c.xid, &c.standbys, &state); err != nil {
		return err
	}
	c.met(state)
	if n == len(rows) {
		for i := range rows {
			c.Inserted[rows[i].KeyHash] = true
		}
	}
	for _, key := range some {
		c.Inserted[key] = true
	}
	return nil
}

// Forget implements claims.Driver.
func (c *claim) Forget(ctx context.Context, keys []dedup.KeyHash) error {
	_, err := c.tx.Exec(ctx, c.store.sql.Forget, pgUUIDs(keys))
	return claimError(err)
}

// Flush implements claims.Driver.
func (c *claim) Flush(ctx context.Context) error {
	if !c.standbys {
		return nil
	}
	if c.tx == nil {
		if err := c.open(ctx); err != nil {
			return err
		}
	}
	_, err := c.tx.Exec(ctx, c.store.sql.FlushDuplicate)
	return claimError(err)
}
