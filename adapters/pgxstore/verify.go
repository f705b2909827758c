package pgxstore

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/internal/claims"
)

var _ dedup.TxVerifier[pgx.Tx] = (*Store)(nil)

// VerifyTx implements dedup.TxVerifier. It asks the server only where the handler could do something that the Store has not
// seen: it used a pgx.QueryRewriter or sent several statements in one string, or it or a handler before it called tx.Conn or
// tx.LargeObjects.
func (s *Store) VerifyTx(ctx context.Context, tx pgx.Tx) error {
	t, ok := tx.(*guarded)
	if !ok {
		return errors.New("pgxstore: verify: want the transaction that InTx gave to fn")
	}
	if err := t.g.verifyForCommit(ctx); err != nil {
		return err
	}
	t.g.mu.Lock()
	t.g.unverified = t.g.exposed // whoever has the connection may use it while the next handler runs
	t.g.mu.Unlock()
	return nil
}

// errSwallowed and errLeftOpen are not ErrTxEnded: the transaction is still the one that claimed.
var (
	errSwallowed = errors.New("pgxstore: rolled back: a statement failed, and the handler returned nil")
	errLeftOpen  = errors.New("pgxstore: rolled back: the handler left rows or a batch open: close them before it returns")
)

// verdict says, after a handler returned nil, whether COMMIT may be sent.
func (g *guard) verifyForCommit(ctx context.Context) error {
	if err := g.refused(); err != nil {
		return err
	}
	switch conn := g.conn.PgConn(); {
	case conn.IsClosed():
		return g.lost("connection lost before COMMIT", g.first)
	case conn.IsBusy():
		return errLeftOpen
	case conn.TxStatus() == 'E':
		return g.aborted(errSwallowed)
	}
	g.mu.Lock()
	verified := !g.unverified || g.xid == ""
	g.mu.Unlock()
	if verified {
		return nil
	}
	return g.verify(ctx)
}

// prove asks the server which transaction this is, and whether its session is what it was.
func (g *guard) verify(ctx context.Context) error {
	var xid, session string
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTimeout) // the end of ctx proves nothing
	defer cancel()
	if err := g.conn.QueryRow(ctx, g.store.sql.Verify).Scan(&xid, &session); err != nil {
		return claims.DatabaseErrorf("pgxstore: prove the transaction: %w", err)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if xid != g.xid {
		g.ended = fmt.Errorf("%w: the handler ended transaction %s and began another", dedup.ErrTxEnded, g.xid)
		return g.ended
	}
	if session != g.sessionState {
		g.changed, g.resync = true, true
	}
	return nil
}

// lookBack returns err, why the transaction is not committed, unless the handler had committed it before: then it returns
// dedup.ErrTxEnded. It asks only where the handler had means to do so that the guard did not see. The transaction is rolled back
// first: what it is now may be another one, and a failed statement may stand in the way.
func (g *guard) lookBack(ctx context.Context, err error) error {
	g.mu.Lock()
	watched, denied, ended := !g.unverified && !g.exposed, g.denied, errors.Is(g.ended, dedup.ErrTxEnded)
	g.mu.Unlock()
	switch {
	case watched && denied: // the caller rolls it back
		return fmt.Errorf("%w; %w", err, dedup.ErrRolledBack)
	case ended:
		return g.inDoubt(err)
	case watched, g.xid == "":
		return err
	}
	rollback(ctx, g.tx) // closes a connection on which rows are open
	switch committed, asked := g.committed(ctx); {
	case asked != nil:
		return g.inDoubt(err)
	case !committed:
		return err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.ended = fmt.Errorf("%w: the handler committed transaction %s by itself", dedup.ErrTxEnded, g.xid)
	return g.inDoubt(fmt.Errorf("%w, before this error: %w", g.ended, err))
}

// inDoubt is err with what tells later whether the transaction was committed.
func (g *guard) inDoubt(err error) error {
	if g.xid == "" {
		return err
	}
	xid := g.xid
	return &dedup.InDoubtError{Err: err, Committed: func(ctx context.Context, tx any) (bool, error) {
		on, ok := tx.(pgx.Tx)
		if !ok {
			return true, nil
		}
		var status string
		if err := on.QueryRow(ctx, txStatus, xid).Scan(&status); err != nil {
			return false, claims.DatabaseErrorf("pgxstore: ask what became of transaction %s: %w", xid, err)
		}
		return status == "committed" || status == "", nil
	}}
}

// answerWithin bounds how long the server may need to roll back the transaction of a connection that was closed, and how long it is
// asked again where it does not answer.
const answerWithin = 2 * time.Second

// committed reports whether the server says that the transaction was committed. Where its connection is lost, or was closed
// because the handler's ctx ended during a statement, a new connection is asked. The error says that nobody answered.
func (g *guard) committed(ctx context.Context) (bool, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTimeout)
	defer cancel()
	if status, err := g.status(ctx, g.conn); err == nil {
		return status == "committed", nil
	}
	var conn *pgx.Conn
	defer func() {
		if conn != nil {
			g.store.disconnect(ctx, conn)
		}
	}()
	for until := time.Now().Add(answerWithin); ; <-time.After(10 * time.Millisecond) {
		var status string
		var err error
		if conn == nil || conn.IsClosed() {
			conn, err = g.store.connect(ctx)
		}
		if err == nil {
			status, err = g.status(ctx, conn)
		}
		switch {
		case err == nil && status != "in progress":
			return status == "committed", nil
		case time.Now().Before(until):
		case err == nil:
			return false, fmt.Errorf("transaction %s is still in progress", g.xid)
		default:
			return false, err
		}
	}
}

// txStatus says what became of a transaction: in progress, committed or aborted; empty: it is too long ago.
const txStatus = `SELECT coalesce(pg_xact_status($1::text::xid8), '')`

func (g *guard) status(ctx context.Context, conn *pgx.Conn) (status string, err error) {
	err = conn.QueryRow(ctx, txStatus, g.xid).Scan(&status)
	return status, err
}

// aborted adds the first failure to err, where there was one before it: it decides what is retryable.
func (g *guard) aborted(err error) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.first == nil || errors.Is(err, g.first) {
		return err
	}
	return &abortedError{err: err, first: g.first}
}

// abortedError is what became of a transaction after a statement that the handler had swallowed.
type abortedError struct{ err, first error }

func (e *abortedError) Error() string { return fmt.Sprintf("%v; it began with: %v", e.err, e.first) }

func (e *abortedError) Unwrap() []error { return []error{e.first, e.err} }
