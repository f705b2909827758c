package sqlstore

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/txonce/txonce/adapters/sqlstore/internal/engine"
)

// transaction is a transaction that the Store began, and what must be given back after it.
type transaction struct {
	engine.Transaction

	store  *Store
	handed time.Time       // when a handler was last given the transaction
	failed error           // what VerifyTx found
	end    context.Context // what the driver commits and rolls back under
	cancel context.CancelFunc
	leave  func()
}

// begin begins a transaction. ctx bounds how long that may take; it does not end the transaction, as database/sql would
// have it, because a rollback must not race with COMMIT.
func (s *Store) begin(ctx context.Context, level sql.IsolationLevel) (_ *transaction, err error) {
	t := &transaction{store: s}
	t.end, t.cancel = context.WithCancel(context.WithoutCancel(ctx))
	defer func() {
		if err != nil {
			t.close()
			err = engine.Database.Errorf("sqlstore: begin: %w", err)
		}
	}()
	if err = s.locate(ctx, nil); err != nil {
		return nil, err
	}
	if t.leave, err = s.db.Transactions.Enter(ctx); err != nil {
		return nil, err
	}
	for range 3 { // a pool may hand out connections that the server has closed
		if t.Conn, err = s.cfg.DB.Conn(ctx); err != nil {
			return nil, err
		}
		limited, cancel := context.WithTimeout(ctx, s.cfg.ClaimTimeout+s.answerWithin)
		stop := context.AfterFunc(limited, t.cancel)
		t.Tx, err = s.db.Transactions.Begin(limited, t.end, t.Conn, level)
		stopped := stop()
		cancel()
		if !stopped {
			return nil, cmp.Or(ctx.Err(), context.DeadlineExceeded)
		}
		if err == nil || !isBadConn(err) {
			return t, err
		}
		t.Conn.Close()
	}
	return t, err
}

// close rolls back what was not committed. It is safe to call twice.
func (t *transaction) close() {
	defer t.cancel()
	t.giveBack()
	if t.leave != nil {
		t.leave()
		t.leave = nil
	}
}

// giveBack rolls back what was not committed, and gives the connection back. It is safe to call twice.
func (t *transaction) giveBack() {
	if t.Tx != nil {
		_ = t.rollback() // a connection that cannot roll back is not used again
	}
	if t.Conn != nil {
		if t.Tx != nil {
			ctx, cancel := context.WithTimeout(t.end, t.store.answerWithin)
			t.store.db.Transactions.Restore(ctx, &t.Transaction)
			cancel()
			t.Tx = nil
		}
		t.Conn.Close()
	}
}

func (t *transaction) rollback() error {
	timer := time.AfterFunc(t.store.answerWithin, t.cancel)
	defer timer.Stop()
	err := t.Tx.Rollback()
	t.Ended = t.Ended || err == nil
	return err
}

// commit commits. After an error that is not the handler's the outcome is unknown, or the transaction was rolled back.
func (t *transaction) commit() error {
	timer := time.AfterFunc(t.store.answerWithin, t.cancel)
	defer timer.Stop()
	err := t.store.db.Transactions.Commit(t.end, t.Tx)
	switch {
	case err == nil:
		t.Ended = true
		return nil
	case errors.Is(err, sql.ErrTxDone):
		return errCommitted
	case t.store.fault(err).Constraint && t.store.fault(err).Ambiguous:
		return err
	case t.store.fault(err).Constraint: // a deferred one
		return handlerError{err}
	}
	return engine.Database.Errorf("sqlstore: commit: %w", err)
}
