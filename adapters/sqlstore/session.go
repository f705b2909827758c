package sqlstore

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/txonce/txonce/dedup"
)

// answerWithin bounds every statement that should be answered at once. COMMIT and ROLLBACK have no other bound, as they
// must not be cut short by the end of ctx: a COMMIT without an answer has an unknown outcome.
const answerWithin = 10 * time.Second

// session is a transaction that the Store began, and what must be given back after it.
type session struct {
	store  *Store
	conn   *sql.Conn
	tx     *sql.Tx
	ended  bool            // its end was answered
	end    context.Context // what the driver commits and rolls back under
	cancel context.CancelFunc
	leave  func()
}

// begin begins a transaction. ctx bounds how long that may take; it does not end the transaction, as database/sql would
// have it, because a rollback must not race with COMMIT.
func (s *Store) begin(ctx context.Context, level sql.IsolationLevel) (_ *session, err error) {
	t := &session{store: s}
	t.end, t.cancel = context.WithCancel(context.WithoutCancel(ctx))
	defer func() {
		if err != nil {
			t.close()
			err = databaseError{fmt.Errorf("sqlstore: begin: %w", err)}
		}
	}()
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
	if t.tx != nil {
		_ = t.rollback() // a connection that cannot roll back is not used again
	}
	if t.conn != nil {
		if t.tx != nil {
			ctx, cancel := context.WithTimeout(t.end, t.store.answerWithin)
			t.store.db.restore(ctx, t.conn, t.ended)
			cancel()
			t.tx = nil
		}
		t.conn.Close()
	}
	if t.leave != nil {
		t.leave()
		t.leave = nil
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
		return errEnded
	case t.store.db.constraint(err): // a deferred one
		return err
	}
	return databaseError{fmt.Errorf("sqlstore: commit: %w", err)}
}

// errEnded is what is known of a transaction that tx.Commit or tx.Rollback has ended.
var errEnded = fmt.Errorf("%w: it called Commit or Rollback on it; after Commit its effects and the claim are committed; "+
	"return nil to commit, an error to roll back", dedup.ErrTxEnded)

// mark returns the proof of the transaction that a handler gets.
func (t *session) mark(ctx context.Context, xid string) (proof string, err error) {
	ctx, cancel := context.WithTimeout(ctx, t.store.answerWithin)
	defer cancel()
	proof, err = t.store.db.mark(ctx, t.tx, xid)
	return proof, t.store.claimError(err)
}

// prove says, after the handler returned nil, whether COMMIT may be sent.
func (t *session) prove(ctx context.Context, proof string) error {
	limited, cancel := context.WithTimeout(ctx, t.store.answerWithin)
	defer cancel()
	err := t.store.db.prove(limited, t.tx, proof)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, sql.ErrTxDone):
		return errEnded
	case errors.Is(err, dedup.ErrTxEnded), ctx.Err() != nil:
		return err
	case t.store.db.retryable(err), t.rollback() != nil:
		return databaseError{fmt.Errorf("sqlstore: connection lost before COMMIT: %w", err)}
	}
	return fmt.Errorf("sqlstore: not committed: %w", err) // such as rows that the handler left open
}

// blame adds to a handler's error what the handler cannot know: that it ended its transaction, or that the connection
// was lost.
func (t *session) blame(err error, proof string) error {
	ctx, cancel := context.WithTimeout(t.end, t.store.answerWithin)
	defer cancel()
	proven := t.store.db.prove(ctx, t.tx, proof)
	// A statement that was cancelled or met a full disk may end the transaction on SQLite, a deadlock does on MySQL, and the
	// connection may be lost elsewhere.
	excused := errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) || t.store.db.retryable(err)
	switch {
	case proven == nil, errors.Is(proven, errAborted):
		return err
	case errors.Is(proven, sql.ErrTxDone):
		return fmt.Errorf("%w (the handler returned: %w)", errEnded, err)
	case errors.Is(proven, dedup.ErrTxEnded) && !(excused && t.store.cfg.Dialect != Postgres):
		return fmt.Errorf("%w (the handler returned: %w)", proven, err)
	case excused:
		return err
	case t.rollback() != nil:
		return databaseError{fmt.Errorf("sqlstore: connection lost: %w", err)}
	}
	return err
}

// errAborted says that an earlier statement of the transaction failed, so that it can only be rolled back.
var errAborted = fmt.Errorf("%w: a statement failed, and the handler returned nil", dedup.ErrTxEnded)
