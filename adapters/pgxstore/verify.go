package pgxstore

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/txonce/txonce/adapters/pgxstore/internal/pgxrows"
	"github.com/txonce/txonce/dedup"
)

// VerifyTx implements driver.TxVerifier. It asks the server only if the handler could do something that the Store did
// not see: the handler used a pgx.QueryRewriter or savepoints, or sent several statements in one string, or this
// handler or an earlier one called tx.Conn or tx.LargeObjects.
func (s *Store) VerifyTx(ctx context.Context, tx pgx.Tx) error { return verifyTx(ctx, tx) }

func verifyTx(ctx context.Context, tx pgx.Tx) error {
	t, ok := tx.(*guarded)
	if !ok {
		return errors.New("pgxstore: verify: want the transaction that InTx gave to fn")
	}
	if err := t.g.verifyForCommit(ctx, true); err != nil {
		return err
	}
	t.g.mu.Lock()
	t.g.sight.lost = t.g.sight.exposed // an earlier handler may use the connection while the next one runs
	t.g.mu.Unlock()
	t.g.points.verified()
	return nil
}

// errSwallowed is not ErrTxEnded, because the transaction of the claim is still open.
var (
	errSwallowed = errors.New("pgxstore: rolled back: a statement failed, and the handler returned nil")
	errTemporary = fmt.Errorf("pgxstore: %w; drop it before the handler returns", dedup.ErrTemporary)
)

// verifyForCommit checks, after a handler returned nil, that COMMIT may be sent. If another handler may run before
// COMMIT, it also ends the savepoints that are still set.
func (g *guard) verifyForCommit(ctx context.Context, another bool) error {
	if g.use.inProgress() {
		return errInUse
	}
	if err := g.batches.Check(); err != nil {
		return err
	}
	if g.notBegun() {
		return nil
	}
	if err := g.refused(); err != nil {
		return err
	}
	switch conn := g.c.conn.PgConn(); {
	case conn.IsClosed():
		return g.failures.lost("connection lost before COMMIT", nil, g.c.store.cfg.IdleInTxTimeout)
	case conn.IsBusy():
		return pgxrows.ErrLeftOpen
	case conn.TxStatus() == 'E':
		return g.failures.aborted(errSwallowed)
	}
	if another {
		if err := g.points.release(ctx); err != nil {
			return fmt.Errorf("pgxstore: release a savepoint that the handler left set: %w", g.failures.note(err))
		}
	}
	g.mu.Lock()
	verified := !g.sight.lost && !(another && (g.changed.temporary || g.points.mayHave())) || g.c.xid == ""
	g.mu.Unlock()
	if verified {
		return nil
	}
	return g.verify(ctx, another)
}

// verify asks the server for the current transaction's id, which must be the claim's. If the Store set a savepoint,
// verify also checks that it is still set. If renew is true, another handler follows: the savepoint is set again, and
// there must be no temporary table. Otherwise COMMIT follows, and the synchronous_commit that the claim found is set
// again. All of it takes one round trip, unless the session has ever had a temporary table.
func (g *guard) verify(ctx context.Context, renew bool) error {
	// The end of ctx must not prevent the answer.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTimeout)
	defer cancel()
	s, b, xid, schema := g.c.store, &pgx.Batch{}, "", ""
	b.Queue(s.plain.Verify)
	g.points.queue(b, renew)
	resyncs := !renew && !s.cfg.AllowAsyncCommit
	if resyncs {
		b.Queue(s.plain.Sync, g.c.session.sync)
	}
	results := g.c.conn.SendBatch(ctx, b)
	err := results.QueryRow().Scan(&xid, &schema)
	asked := err == nil
	if closed := results.Close(); asked {
		err = closed
	}
	temporary := false
	if err == nil && renew && schema != noTemporaries && xid == g.c.xid {
		var tables string
		err = g.c.conn.QueryRow(ctx, s.plain.Temporary).Scan(&tables)
		temporary = tables != g.c.session.temps
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case asked && xid != g.c.xid:
		g.ended = fmt.Errorf("%w: the handler ended transaction %s and began another", dedup.ErrTxEnded, g.c.xid)
		return g.ended
	case asked && isNoSavepoint(err):
		return errUndone
	case err != nil:
		return database.Errorf("pgxstore: verify the transaction: %w", err)
	}
	g.points.renewed(renew)
	g.changed.sync = g.changed.sync && !resyncs
	if g.changed.temporary = temporary; temporary {
		return errTemporary
	}
	return nil
}

// lookBack explains a transaction that InTx does not commit. err is the reason. If the handler itself had committed the
// transaction before, lookBack returns dedup.ErrTxEnded. It asks the server only if the handler could commit without
// the guard's notice. It rolls back first, because another transaction may be open now, or a failed statement may block
// the connection.
func (g *guard) lookBack(ctx context.Context, err error) error {
	g.mu.Lock()
	watched, denied, ended := !g.sight.lost && !g.sight.exposed, g.sight.denied, errors.Is(g.ended, dedup.ErrTxEnded)
	g.mu.Unlock()
	switch {
	case watched && denied: // the caller rolls the transaction back
		return fmt.Errorf("%w; %w", err, dedup.ErrRolledBack)
	case ended:
		return inDoubt(g.c.xid, err)
	case watched, g.c.xid == "":
		return err
	}
	rollback(ctx, g.c.tx) // this also closes a connection with open rows
	switch committed, asked := committed(ctx, g.c.xid, g.c.conn, g.c.store.cfg.Pool); {
	case asked != nil:
		return inDoubt(g.c.xid, err)
	case !committed:
		return err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.ended = fmt.Errorf("%w: the handler committed transaction %s by itself", dedup.ErrTxEnded, g.c.xid)
	return inDoubt(g.c.xid, fmt.Errorf("%w, before this error: %w", g.ended, err))
}
