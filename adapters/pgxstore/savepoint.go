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
	setSavepoint     = `; SAVEPOINT txonce_handler`
	releaseSavepoint = `; RELEASE SAVEPOINT txonce_handler`
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
	if _, err := g.conn.PgConn().Exec(ctx, setSavepoint[2:]).ReadAll(); err != nil {
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

// verify asks the server for the current transaction's id, which must be the claim's, and for the session's state. If the Store
// set a savepoint, verify also checks that it is still set; if renew is true, it is set again for the next handler.
func (g *guard) verify(ctx context.Context, renew bool) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTimeout) // the end of ctx must not prevent the answer
	defer cancel()
	sql := g.store.sql.Verify
	g.mu.Lock()
	if g.separated {
		sql += releaseSavepoint
	}
	g.mu.Unlock()
	if renew && g.shared {
		sql += setSavepoint
	}
	results, err := g.conn.PgConn().Exec(ctx, sql).ReadAll()
	undone := isNoSavepoint(err)
	if len(results) == 0 || len(results[0].Rows) == 0 {
		return database.Errorf("pgxstore: verify the transaction: %w", err)
	}
	row := results[0].Rows[0]
	xid, session, temporary := string(row[0]), string(row[1]), string(row[2]) != temporariesOf(g.sessionState)
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case xid != g.xid:
		g.ended = fmt.Errorf("%w: the handler ended transaction %s and began another", dedup.ErrTxEnded, g.xid)
		return g.ended
	case undone:
		return errUndone
	case err != nil:
		return database.Errorf("pgxstore: verify the transaction: %w", err)
	}
	if g.separated = renew && g.shared; g.separated {
		g.within = 0
	}
	if session != temporaries(g.sessionState, "0") {
		g.changed, g.resync = true, true
	}
	if g.temporary = temporary; temporary && renew {
		return errTemporary
	}
	return nil
}

func isNoSavepoint(err error) bool { return sqlState(err) == "3B001" }
