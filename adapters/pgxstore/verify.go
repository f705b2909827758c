package pgxstore

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/txonce/txonce/dedup"
)

// VerifyTx implements driver.TxVerifier. It asks the server only if the handler could do something that the Store did not see:
// the handler used a pgx.QueryRewriter or savepoints, or sent several statements in one string, or this handler or an earlier
// one called tx.Conn or tx.LargeObjects.
func (s *Store) VerifyTx(ctx context.Context, tx pgx.Tx) error {
	t, ok := tx.(*guarded)
	if !ok {
		return errors.New("pgxstore: verify: want the transaction that InTx gave to fn")
	}
	if err := t.g.verifyForCommit(ctx, true); err != nil {
		return err
	}
	t.g.mu.Lock()
	t.g.unverified, t.g.moved = t.g.exposed, false // an earlier handler may use the connection while the next one runs
	t.g.mu.Unlock()
	return nil
}

// errSwallowed and errLeftOpen are not ErrTxEnded, because the transaction of the claim is still open.
var (
	errSwallowed = errors.New("pgxstore: rolled back: a statement failed, and the handler returned nil")
	errLeftOpen  = errors.New("pgxstore: rolled back: the handler left rows or a batch open: close them before it returns")
	errTemporary = fmt.Errorf("pgxstore: %w; drop it before the handler returns", dedup.ErrTemporary)
)

// verifyForCommit checks, after a handler returned nil, that COMMIT may be sent. If another handler may run before COMMIT, it
// also ends the savepoints that are still set.
func (g *guard) verifyForCommit(ctx context.Context, another bool) error {
	if g.inUse() {
		return errInUse
	}
	if err := g.batches.check(); err != nil {
		return err
	}
	if g.notBegun() {
		return nil
	}
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
	if another {
		if err := g.release(ctx); err != nil {
			return err
		}
	}
	g.mu.Lock()
	verified := !g.unverified && !(another && (g.moved || g.temporary)) || g.xid == ""
	g.mu.Unlock()
	if verified {
		return nil
	}
	return g.verify(ctx, another)
}

// lookBack explains a transaction that InTx does not commit. err is the reason. If the handler itself had committed the
// transaction before, lookBack returns dedup.ErrTxEnded. It asks the server only if the handler could commit without the
// guard's notice. It rolls back first, because another transaction may be open now, or a failed statement may block the
// connection.
func (g *guard) lookBack(ctx context.Context, err error) error {
	g.mu.Lock()
	watched, denied, ended := !g.unverified && !g.exposed, g.denied, errors.Is(g.ended, dedup.ErrTxEnded)
	g.mu.Unlock()
	switch {
	case watched && denied: // the caller rolls the transaction back
		return fmt.Errorf("%w; %w", err, dedup.ErrRolledBack)
	case ended:
		return g.inDoubt(err)
	case watched, g.xid == "":
		return err
	}
	rollback(ctx, g.tx) // this also closes a connection with open rows
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

// inDoubt adds to err a function that can find out later whether the transaction was committed.
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
			return false, database.Errorf("pgxstore: ask what became of transaction %s: %w", xid, err)
		}
		return status == "committed" || status == "", nil
	}}
}

// answerWithin limits how long committed waits until the server has rolled back the transaction of a closed connection, and how
// long it repeats a question that got no answer.
const answerWithin = 2 * time.Second

// committed reports whether the server says that the transaction was committed. It opens a new connection if the old one was
// lost, or was closed because the handler's ctx ended during a statement. It returns an error if the server does not answer.
func (g *guard) committed(ctx context.Context) (bool, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTimeout)
	defer cancel()
	if status, err := g.status(ctx, g.conn); err == nil {
		return status == "committed", nil
	}
	var conn *pgx.Conn
	defer func() {
		if conn != nil {
			disconnect(ctx, conn)
		}
	}()
	for until := time.Now().Add(answerWithin); ; <-time.After(10 * time.Millisecond) {
		var status string
		var err error
		if conn == nil || conn.IsClosed() {
			conn, err = connect(ctx, g.store.cfg.Pool)
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

// txStatus returns the state of a transaction: in progress, committed or aborted; empty if it ended too long ago.
const txStatus = `SELECT coalesce(pg_xact_status($1::text::xid8), '')`

func (g *guard) status(ctx context.Context, conn *pgx.Conn) (status string, err error) {
	err = conn.QueryRow(ctx, txStatus, g.xid).Scan(&status)
	return status, err
}

// aborted adds the error of the first failed statement to err, if there is one. That error decides whether err is Retryable.
func (g *guard) aborted(err error) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.first == nil || errors.Is(err, g.first) {
		return err
	}
	return &abortedError{err: err, first: g.first}
}

// abortedError reports a transaction that was aborted by an earlier error, which the handler ignored.
type abortedError struct{ err, first error }

func (e *abortedError) Error() string { return fmt.Sprintf("%v; it began with: %v", e.err, e.first) }

func (e *abortedError) Unwrap() []error { return []error{e.first, e.err} }
