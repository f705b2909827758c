package pgxstore

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/txonce/txonce/dedup"
)

// A handler may leave a savepoint set. If a later handler of the batch rolled back to it, the effects of all handlers between
// them would be undone, and their claims would not. So the Store sets a savepoint of its own before the first statement of a
// transaction that may set one, and renews it after each handler that may have set others: releasing it also releases all later
// savepoints. A handler that uses no savepoints, or only those of pgx's Tx.Begin, costs no round trip.

const (
	setSavepoint     = `SAVEPOINT txonce_handler`
	releaseSavepoint = `RELEASE SAVEPOINT txonce_handler`
)

// errUndone is not ErrTxEnded, because the transaction of the claim is still open.
var errUndone = errors.New("pgxstore: rolled back: the handler rolled back to a savepoint of an earlier handler, or released it, " +
	"which would undo the work of other messages: roll back only to savepoints that the same handler has set")

// separate is called before a statement that may set a savepoint or roll back to one.
func (g *guard) separate(ctx context.Context) error {
	if !g.shared {
		return nil
	}
	g.mu.Lock()
	g.moved = true
	ready := g.separated || g.conn.IsClosed() || g.conn.PgConn().TxStatus() != 'T' // an aborted transaction sets no savepoints
	g.mu.Unlock()
	if ready {
		return nil
	}
	if _, err := g.conn.PgConn().Exec(ctx, setSavepoint).ReadAll(); err != nil {
		return g.note(err)
	}
	g.mu.Lock()
	g.separated, g.within = true, len(g.nested)
	g.mu.Unlock()
	return nil
}

// closed records that the savepoint of t, which Begin set, was released or rolled back to. All later savepoints end with it.
func (g *guard) closed(t *guarded) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if i := slices.Index(g.nested, t); i >= 0 {
		g.nested = g.nested[:i]
		g.separated = g.separated && g.within <= i
	}
}

// release releases the savepoints that a handler left set with Begin, unless they end with the Store's own savepoint.
func (g *guard) release(ctx context.Context) error {
	g.mu.Lock()
	open := g.nested
	g.nested = nil
	follows := g.separated && g.within == 0
	if len(open) > 0 {
		g.separated = follows
	}
	g.mu.Unlock()
	for _, t := range open {
		t.closed = true
	}
	if len(open) == 0 || follows {
		return nil
	}
	if err := open[0].Tx.Commit(ctx); err != nil && !errors.Is(err, pgx.ErrTxClosed) {
		return fmt.Errorf("pgxstore: release a savepoint that the handler left set: %w", g.note(err))
	}
	return nil
}

// verify asks the server for the current transaction's id, which must be the claim's. If the Store set a savepoint, verify also checks that
// it is still set. If renew is true, another handler follows: the savepoint is set again, and there must be no temporary table. Otherwise
// COMMIT follows, and the synchronous_commit that the claim found is set again. All of it takes one round trip, unless the session has
// ever had a temporary table.
func (g *guard) verify(ctx context.Context, renew bool) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTimeout) // the end of ctx must not prevent the answer
	defer cancel()
	g.mu.Lock()
	b, xid, schema, renews := &pgx.Batch{}, "", "", renew && g.shared
	b.Queue(g.store.plain.Verify)
	if g.separated {
		b.Queue(releaseSavepoint)
	}
	if renews {
		b.Queue(setSavepoint)
	}
	resyncs := !renew && !g.store.cfg.AllowAsyncCommit
	if resyncs {
		b.Queue(g.store.plain.Sync, g.session.sync)
	}
	g.mu.Unlock()
	results := g.conn.SendBatch(ctx, b)
	err := results.QueryRow().Scan(&xid, &schema)
	asked := err == nil
	if closed := results.Close(); asked {
		err = closed
	}
	temporary := false
	if err == nil && renew && schema != noTemporaries && xid == g.xid {
		var tables string
		err = g.conn.QueryRow(ctx, g.store.plain.Temporary).Scan(&tables)
		temporary = tables != g.session.temps
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case asked && xid != g.xid:
		g.ended = fmt.Errorf("%w: the handler ended transaction %s and began another", dedup.ErrTxEnded, g.xid)
		return g.ended
	case asked && isNoSavepoint(err):
		return errUndone
	case err != nil:
		return database.Errorf("pgxstore: verify the transaction: %w", err)
	}
	if g.separated = renews; renews {
		g.within = 0
	}
	g.resync = g.resync && !resyncs
	if g.temporary = temporary; temporary {
		return errTemporary
	}
	return nil
}

func isNoSavepoint(err error) bool { return sqlState(err) == "3B001" }
