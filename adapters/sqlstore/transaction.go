package sqlstore

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/txonce/txonce/adapters/sqlstore/internal/engine"
)

// transaction is a transaction that the Store began, with the resources to release after it.
type transaction struct {
	engine.Transaction

	store *Store
	// when the last statement before a handler was sent: the server counts idle time from there, or later
	handed time.Time
	failed error           // the error that VerifyTx returned
	end    context.Context // the context that the driver uses for COMMIT and ROLLBACK
	cancel context.CancelFunc
	leave  func()
}

// begin begins a transaction. ctx limits how long that takes. The end of ctx does not end the transaction, as it would
// in database/sql, because a rollback must not race with COMMIT.
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
	for range 3 { // the pool may return connections that the server has closed
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

// close rolls back an uncommitted transaction and releases its resources. It is safe to call twice.
func (t *transaction) close() {
	defer t.cancel()
	t.giveBack()
	if t.leave != nil {
		t.leave()
		t.leave = nil
	}
}

// giveBack rolls back an uncommitted transaction and returns the connection to the pool. It is safe to call twice.
func (t *transaction) giveBack() {
	if t.Tx != nil {
		_ = t.rollback() // database/sql discards a connection that cannot roll back
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

// commit commits. If the outcome is unknown, the error is errCommitUnknown.
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
	case t.store.fault(err).NotCommitted && t.store.fault(err).Idle:
		return t.lost(err)
	case t.store.fault(err).NotCommitted:
		// a deferred constraint or trigger failed: the code decides, as for a statement of the handler
		return fmt.Errorf("sqlstore: not committed: %w", err)
	}
	return engine.Database.Errorf("sqlstore: %w: %w", errCommitUnknown, err)
}
