package pgxstore

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"
)

// The first round trip of InTx is BEGIN with the claim. If the claim finds that all keys have rows, it reads the rows
// and ends its transaction in the second round trip: most callers of InTx have nothing to do for a duplicate. If fn
// uses its transaction all the same, the guard begins another one. The rows that were found had been committed, so the
// answers stay true whatever happens in between.

func (c *claim) queueBegin(b *pgx.Batch) {
	b.BeginTx(pgx.TxOptions{IsoLevel: c.store.cfg.Isolation})
}

// begin sends b, whose first statement is that of queueBegin.
func (c *claim) begin(ctx context.Context, b *pgx.Batch) (pgx.BatchResults, error) {
	c.noted = false
	results := c.conn.SendBatch(ctx, b)
	c.tx = results.Tx()
	_, err := results.Exec()
	return results, err
}

// open begins a transaction that claims nothing: InTx got no records, or Existing has ended the first transaction. It
// sets the same limit and reads the same state as Insert.
func (c *claim) open(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, c.store.cfg.ClaimTimeout)
	defer cancel()
	b := &pgx.Batch{}
	c.queueBegin(b)
	b.Queue(c.store.plain.Open, c.idleLimit)
	results, err := c.begin(ctx, b)
	if err == nil {
		var state string
		if err = results.QueryRow().Scan(&c.standbys, &state); err == nil {
			c.met(state)
		}
	}
	return c.read(results, nil, err)
}

// errNotBegun is the error of the transaction's methods while it begins, and for good if a tracer or logger of the user
// panics meanwhile.
var errNotBegun = errors.New("pgxstore: the transaction has not begun")

// openFor begins the transaction of c for the handler, which has got tx. All keys of c had rows, so there was none to
// keep open. If that fails, the connection is closed: nothing that the handler sends may be committed alone.
func (c *claim) openFor(ctx context.Context, tx *guarded) (err error) {
	s, whole := c.store, tx.g.ctx
	err = errNotBegun
	defer func() {
		if err != nil {
			s.discard(whole, c.conn)
		}
	}()
	failed := c.open(ctx)
	if failed == nil {
		failed = c.fits(whole)
	}
	tx.Tx = c.tx
	if failed != nil {
		return database.Errorf("pgxstore: begin: %w", failed)
	}
	return nil
}

// ready is called before everything that the handler does with the transaction.
func (g *guard) ready(ctx context.Context) error {
	g.beginOnce(ctx)
	if err := g.refused(); err != nil {
		return err
	}
	if err := g.sendDeferred(ctx); err != nil {
		return err
	}
	return g.flushResults(ctx)
}

func (g *guard) beginOnce(ctx context.Context) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.begin == nil || g.ended != nil {
		return
	}
	begin := g.begin
	g.begin, g.ended = nil, errNotBegun
	g.ended = begin(ctx)
	g.failures.begin()
}

// notBegun reports whether the transaction has not begun, because all keys had rows and the handler has done nothing.
func (g *guard) notBegun() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.begin != nil && g.ended == nil
}
