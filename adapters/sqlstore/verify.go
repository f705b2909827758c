package sqlstore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/txonce/txonce/adapters/sqlstore/internal/engine"
	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/dedup/driver"
	"github.com/txonce/txonce/internal/await"
)

// errCommitted and errRolledBack mean that the handler called tx.Commit or tx.Rollback.
var (
	errCommitted = fmt.Errorf("%w: it called Commit or Rollback on it; after Commit its effects and the claim are committed; "+
		"return nil to commit, an error to roll back", dedup.ErrTxEnded)
	errRolledBack = fmt.Errorf("%w: it called Rollback on it; return nil to commit, an error to roll back; %w",
		dedup.ErrTxEnded, dedup.ErrRolledBack)
)

// endedByMethod finds out whether the handler called Commit or Rollback. After either, tx takes no statements.
func (t *transaction) endedByMethod(ctx context.Context) error {
	if committed, err := t.claimCommitted(ctx); len(t.Claim.Inserted) > 0 && err == nil && !committed {
		return errRolledBack
	}
	return errCommitted
}

// handlerError is an error that looks like the database's fault but is the handler's.
type handlerError struct{ error }

func (e handlerError) Unwrap() error { return e.error }

// idleError is Retryable and Ambiguous: the handler was too slow between two statements, or its process was suspended.
type idleError struct{ error }

func (e idleError) Unwrap() error { return e.error }

// VerifyTx implements driver.TxVerifier. It renews a savepoint, which also ends the savepoints that a handler left set.
// On PostgreSQL and MariaDB that costs one round trip, on MySQL two, and on SQLite none. Once it has failed, InTx fails
// with the same error, whatever fn returns, except after dedup.ErrTemporary.
func (s *Store) VerifyTx(ctx context.Context, tx *sql.Tx) error {
	t := s.running.of(tx)
	if t == nil {
		return errors.New("sqlstore: VerifyTx: InTx of this Store has not handed out this transaction")
	}
	if t.failed == nil {
		sent := time.Now()
		err := t.check(ctx, s.db.Proofs.VerifyAndStamp)
		if !errors.Is(err, dedup.ErrTemporary) {
			t.failed = err
		}
		t.handed = sent
		return err
	}
	return t.failed
}

// stamp prepares the transaction for verification before a handler gets it.
func (t *transaction) stamp(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, t.store.answerWithin)
	defer cancel()
	t.handed = time.Now()
	err := t.store.db.Proofs.Stamp(ctx, &t.Transaction)
	if err == nil && t.Claim.Server != "" { // nothing may have been claimed
		t.store.history.Saw(t.Claim.Server)
	}
	return t.store.claimError(err)
}

// check verifies the transaction after a handler returned nil, and returns nil if COMMIT may be sent. verify is the
// engine's method. check also runs after ctx has ended, because the handler may have committed before.
func (t *transaction) check(ctx context.Context, verify func(context.Context, *engine.Transaction) error) error {
	limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), t.store.answerWithin)
	defer cancel()
	err := verify(limited, &t.Transaction)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, sql.ErrTxDone):
		return t.endedByMethod(limited)
	case errors.Is(err, dedup.ErrTxEnded), errors.Is(err, engine.ErrTemporary):
		return err
	case errors.Is(err, engine.ErrSwallowed): // the failed statement may belong to a later transaction of the handler
		switch committed, failed := t.claimCommitted(limited); {
		case failed != nil:
			return t.askElsewhere(err)
		case committed:
			return fmt.Errorf("%w: it committed the claim, and went on in another transaction (%w)",
				dedup.ErrTxEnded, err)
		}
		return err
	}
	return t.askElsewhere(t.explainUnverified(ctx, limited, err))
}

// explainUnverified explains why a transaction could not be verified after a handler returned nil. err is the error of
// the verification. The cause is the end of ctx, open rows, or a lost connection.
func (t *transaction) explainUnverified(ctx, limited context.Context, err error) error {
	switch {
	case ctx.Err() != nil:
		return fmt.Errorf("sqlstore: not committed: %w: %w", ctx.Err(), err)
	case openRows(err):
		_ = t.rollback()
	case t.rollback() != nil:
		if !errors.Is(err, engine.ErrUnready) || t.idle() || !t.aloneLost(limited) {
			return t.lost(err)
		}
		// The driver closes a connection with open rows when the handler's context ends, for example after
		// Config.HandlerTimeout.
	case t.store.fault(err).Retryable:
		return engine.Database.Errorf("sqlstore: not committed: %w", err)
	}
	// The handler left rows open: err says so, or the connection answers again because ROLLBACK has closed them.
	return handlerError{fmt.Errorf("sqlstore: not committed: %w: close the rows that a handler opens, before it returns", err)}
}

// explain adds to a handler's error what the handler cannot know: that it ended its transaction, that the connection
// was lost, or that the error belongs to another transaction.
func (t *transaction) explain(err error) error {
	ctx, cancel := context.WithTimeout(t.end, t.store.answerWithin)
	defer cancel()
	switch {
	case openRows(err), isBadConn(err) && (t.rollback() == nil || !t.idle() && t.aloneLost(ctx)):
		return t.askElsewhere(handlerError{fmt.Errorf("%w (was a statement sent while rows were open?)", err)})
	case isBadConn(err):
		return t.askElsewhere(t.lost(err))
	}
	verifyErr := t.store.db.Proofs.Verify(ctx, &t.Transaction)
	cut := errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
	switch {
	case verifyErr == nil && t.store.fault(err).Elsewhere: // in this transaction the error would have ended it
		return handlerError{err}
	case verifyErr == nil && t.store.fault(err).Busy:
		return fmt.Errorf("%w (a handler that writes through another connection than its tx waits for the lock of its own transaction)", err)
	case verifyErr == nil:
		return err
	case errors.Is(verifyErr, sql.ErrTxDone):
		return fmt.Errorf("%w (the handler returned: %w)", t.endedByMethod(ctx), err)
	case errors.Is(verifyErr, engine.ErrSwallowed):
		// the handler returned the error; the failed statement may belong to a later transaction
		switch committed, failed := t.claimCommitted(ctx); {
		case failed != nil:
			return t.askElsewhere(err)
		case committed:
			return fmt.Errorf("%w: it committed the claim, and went on in another transaction (it returned: %w)",
				dedup.ErrTxEnded, err)
		}
		return err
	case errors.Is(verifyErr, dedup.ErrTxEnded):
		// A deadlock ends a transaction; so does, on SQLite, a canceled statement or a full disk.
		// The handler may have replaced that error with its own.
		if cut && t.store.cfg.Dialect != Postgres || t.store.fault(err).MayEnd ||
			t.store.db.Proofs.LateWritesRollBack(ctx, &t.Transaction) {
			switch committed, failed := t.claimCommitted(ctx); {
			case failed != nil: // the connection was lost meanwhile
				return t.askElsewhere(err)
			case !committed:
				return err
			}
		}
		return fmt.Errorf("%w (the handler returned: %w)", verifyErr, err)
	case t.store.fault(err).Idle:
		return t.askElsewhere(t.lost(err))
	case cut, t.store.fault(err).Retryable:
		return t.askElsewhere(err)
	case t.rollback() != nil:
		return t.askElsewhere(t.lost(err))
	}
	return t.askElsewhere(handlerError{err}) // for example a statement sent while rows are open
}

// askElsewhereWait limits how long askElsewhere waits for the server to end a transaction whose connection is lost, and
// how long it retries if other connections are lost too.
const askElsewhereWait = 2 * time.Second

// askElsewhere is called when the transaction could not be verified on its own connection. It asks on another
// connection whether the handler committed the claim. If so, it returns ErrTxEnded with err in it. If no connection
// answers, or the server does not end the transaction in time, it returns an InDoubtError. A pool without a free
// connection counts as no answer.
func (t *transaction) askElsewhere(err error) error {
	if len(t.Claim.Inserted) == 0 {
		return err
	}
	t.Spoilt = true
	t.giveBack() // the pool may have only one connection
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.end), t.store.answerWithin)
	defer cancel()
	for until := time.Now().Add(askElsewhereWait); ; {
		// ask this first: once the transaction has ended, the answer of Committed is final
		running, failed := t.store.db.Proofs.InProgress(ctx, t.Claim)
		committed := false
		if failed == nil {
			committed, failed = t.store.db.Proofs.Committed(ctx, t.store.cfg.DB, t.Claim)
		}
		switch {
		case failed == nil && committed:
			return fmt.Errorf("%w: it committed the claim before its connection was cut or took no more statements (%w)", dedup.ErrTxEnded, err)
		case failed == nil && !running:
			return err
		case time.Now().After(until), await.Sleep(ctx, 20*time.Millisecond) != nil:
			return t.inDoubt(err)
		}
	}
}

// inDoubt returns err as an InDoubtError.
func (t *transaction) inDoubt(err error) error {
	return &dedup.InDoubtError{Err: err, Committed: t.committed}
}

// markInDoubt checks each error that InTx returns after a handler ran. If the handler may have committed the claim, it
// returns an InDoubtError.
func (t *transaction) markInDoubt(err error) error {
	var already *dedup.InDoubtError
	if !errors.Is(err, dedup.ErrTxEnded) || errors.Is(err, dedup.ErrRolledBack) || errors.As(err, &already) {
		return err
	}
	return t.inDoubt(err)
}

// committed implements InDoubtError.Committed. If it cannot find out, it returns true, and the message stays in doubt.
func (t *transaction) committed(ctx context.Context, tx any) (bool, error) {
	asked, ok := tx.(*sql.Tx)
	if !ok || len(t.Claim.Inserted) == 0 {
		return true, nil
	}
	committed, err := t.store.db.Proofs.CommittedBefore(ctx, asked, t.Claim)
	return committed, t.store.claimError(err)
}

// idle reports whether the handler may have been idle for longer than the server allows.
func (t *transaction) idle() bool {
	limit := t.store.cfg.IdleInTxTimeout
	return limit > 0 && time.Since(t.handed) >= limit && t.store.cfg.Dialect != SQLite
}

// aloneLost reports whether only this connection is lost. go-sql-driver gives up a connection when a statement is sent
// while rows are open, and returns the same error as for a lost connection.
func (t *transaction) aloneLost(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, engine.PingWait)
	defer cancel()
	return t.store.cfg.Dialect == MySQL && t.store.cfg.DB.PingContext(ctx) == nil
}

// claimCommitted rolls back, and then reports whether the claim is committed. An error means that this connection does
// not tell.
func (t *transaction) claimCommitted(ctx context.Context) (bool, error) {
	if len(t.Claim.Inserted) == 0 {
		return false, nil
	}
	_ = t.rollback() // there may be nothing to roll back
	return t.store.db.Proofs.Committed(ctx, t.Conn, t.Claim)
}

// idleLimits names the server's settings that end an idle transaction's connection.
var idleLimits = map[Dialect]string{
	Postgres: "idle_in_transaction_session_timeout",
	MySQL:    "wait_timeout or idle_transaction_timeout",
}

// lost returns the error for a connection that was lost while a handler used it. If the server may have closed the
// connection because the handler was idle for too long, the error is an idleError.
func (t *transaction) lost(err error) error {
	f := t.store.fault(err)
	if f.Idle || t.idle() && f.Class != driver.FaultTimeLimit { // such as transaction_timeout, which err names
		return idleError{fmt.Errorf("sqlstore: connection lost after the handler had it for %v, as the server ends a transaction "+
			"that is idle for longer than Config.IdleInTxTimeout, %v, or the session's %s: %w",
			time.Since(t.handed).Round(time.Millisecond), t.store.cfg.IdleInTxTimeout, idleLimits[t.store.cfg.Dialect], err)}
	}
	return engine.Database.Errorf("sqlstore: connection lost before COMMIT: %w", err)
}
