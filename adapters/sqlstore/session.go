package sqlstore

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/txonce/txonce/internal/claims"
)

// answerWithin bounds every statement that should be answered at once. COMMIT and ROLLBACK have no other bound, as they
// must not be cut short by the end of ctx: a COMMIT without an answer has an unknown outcome.
const answerWithin = 10 * time.Second

// session is a transaction that the Store began, and what must be given back after it.
type session struct {
	store   *Store
	conn    *sql.Conn
	tx      *sql.Tx
	claim   *claim          // nil: the transaction is not for a handler
	proof   string          // of the transaction, see database.mark
	handed  time.Time       // when a handler was last given the transaction
	failed  error           // what VerifyTx found
	ended   bool            // its end was answered
	changed bool            // the handler's transaction ended with other settings than it began with
	spoilt  bool            // somebody may have changed the session's settings: the connection is closed
	end     context.Context // what the driver commits and rolls back under
	cancel  context.CancelFunc
	leave   func()
}

// begin begins a transaction. ctx bounds how long that may take; it does not end the transaction, as database/sql would
// have it, because a rollback must not race with COMMIT.
func (s *Store) begin(ctx context.Context, level sql.IsolationLevel) (_ *session, err error) {
	t := &session{store: s}
	t.end, t.cancel = context.WithCancel(context.WithoutCancel(ctx))
	defer func() {
		if err != nil {
			t.close()
			err = claims.DatabaseErrorf("sqlstore: begin: %w", err)
		}
	}()
	if err = s.locate(ctx, nil); err != nil {
		return nil, err
	}
	if t.leave, err = s.db.enter(ctx); err != nil {
		return nil, err
	}
	for range 3 { // a pool may hand out connections that the server has closed
		if t.conn, err = s.cfg.DB.Conn(ctx); err != nil {
			return nil, err
		}
		limited, cancel := context.WithTimeout(ctx, s.cfg.InFlightWait+s.answerWithin)
		stop := context.AfterFunc(limited, t.cancel)
		t.tx, err = s.db.begin(limited, t.end, t.conn, level)
		stopped := stop()
		cancel()
		if !stopped {
			return nil, cmp.Or(ctx.Err(), context.DeadlineExceeded)
		}
		if err == nil || !isBadConn(err) {
			return t, err
		}
		t.conn.Close()
	}
	return t, err
}

// close rolls back what was not committed. It is safe to call twice.
func (t *session) close() {
	defer t.cancel()
	t.giveBack()
	if t.leave != nil {
		t.leave()
		t.leave = nil
	}
}

// giveBack rolls back what was not committed, and gives the connection back. It is safe to call twice.
func (t *session) giveBack() {
	if t.tx != nil {
		_ = t.rollback() // a connection that cannot roll back is not used again
	}
	if t.conn != nil {
		if t.tx != nil {
			ctx, cancel := context.WithTimeout(t.end, t.store.answerWithin)
			t.store.db.restore(ctx, t)
			cancel()
			t.tx = nil
		}
		t.conn.Close()
	}
}

func (t *session) rollback() error {
	timer := time.AfterFunc(t.store.answerWithin, t.cancel)
	defer timer.Stop()
	err := t.tx.Rollback()
	t.ended = t.ended || err == nil
	return err
}

// commit commits. After an error that is not the handler's the outcome is unknown, or the transaction was rolled back.
func (t *session) commit() error {
	timer := time.AfterFunc(t.store.answerWithin, t.cancel)
	defer timer.Stop()
	err := t.store.db.commit(t.end, t.tx)
	switch {
	case err == nil:
		t.ended = true
		return nil
	case errors.Is(err, sql.ErrTxDone):
		return errCommitted
	case t.store.db.constraint(err) && t.store.db.ambiguous(err):
		return err
	case t.store.db.constraint(err): // a deferred one
		return handlerError{err}
	}
	return claims.DatabaseErrorf("sqlstore: commit: %w", err)
}
