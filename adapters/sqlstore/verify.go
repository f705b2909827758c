package sqlstore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/txonce/txonce/adapters/sqlstore/internal/engine"
	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/internal/await"
)

// errCommitted and errRolledBack are about a transaction that tx.Commit or tx.Rollback has ended.
var (
	errCommitted = fmt.Errorf("%w: it called Commit or Rollback on it; after Commit its effects and the claim are committed; "+
		"return nil to commit, an error to roll back", dedup.ErrTxEnded)
	errRolledBack = fmt.Errorf("%w: it called Rollback on it; return nil to commit, an error to roll back; %w", dedup.ErrTxEnded, dedup.ErrRolledBack)
)

// endedByMethod says which of the two it was. No statement can be sent through tx after either.
func (t *transaction) endedByMethod(ctx context.Context) error {
	if len(t.Claim.Inserted) > 0 && !t.claimCommitted(ctx) {
		return errRolledBack
	}
	return errCommitted
}

// handlerError is an error that looks like the database's, and is the handler's doing.
type handlerError struct{ error }

func (e handlerError) Unwrap() error { return e.error }

// running knows the transactions that handlers have.
type running struct {
	mu       sync.Mutex
	sessions map[*sql.Tx]*transaction
}

func (r *running) add(t *transaction) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.sessions == nil {
		r.sessions = make(map[*sql.Tx]*transaction)
	}
	r.sessions[t.Tx] = t
}

func (r *running) remove(tx *sql.Tx) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.sessions, tx)
}

func (r *running) of(tx *sql.Tx) *transaction {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.sessions[tx]
}

// VerifyTx implements dedup.TxVerifier. It costs a round trip: on PostgreSQL a SELECT, on MariaDB one statement that
// renews a savepoint, and two on MySQL. On SQLite it stays in process. Once it has failed, InTx fails with the same error,
// whatever fn returns.
func (s *Store) VerifyTx(ctx context.Context, tx *sql.Tx) error {
	t := s.running.of(tx)
	if t == nil {
		return errors.New("sqlstore: VerifyTx: InTx of this Store has not handed out this transaction")
	}
	if t.failed == nil {
		t.failed = t.check(ctx, s.db.Proofs.VerifyAndStamp)
		t.handed = time.Now()
	}
	return t.failed
}

// stamp makes the proof of the transaction that a handler gets.
func (t *transaction) stamp(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, t.store.answerWithin)
	defer cancel()
	return t.store.claimError(t.store.db.Proofs.Stamp(ctx, &t.Transaction))
}

// check says, after a handler returned nil, whether COMMIT may be sent. verify is the engine's. It proves the transaction also
// where ctx has ended, because the handler may have committed before.
func (t *transaction) check(ctx context.Context, verify func(context.Context, *engine.Transaction) error) error {
	limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), t.store.answerWithin)
	defer cancel()
	err := verify(limited, &t.Transaction)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, sql.ErrTxDone):
		return t.endedByMethod(limited)
	case errors.Is(err, dedup.ErrTxEnded):
		return err
	case errors.Is(err, engine.ErrSwallowed): // but of which transaction was the statement?
		if t.claimCommitted(limited) {
			return fmt.Errorf("%w: it committed the claim, and went on in another transaction (%w)", dedup.ErrTxEnded, err)
		}
		return err
	}
	return t.lookBack(t.unproven(ctx, limited, err))
}

// unproven says whose fault it is that the transaction of a handler that returned nil cannot be proven, because of err.
func (t *transaction) unproven(ctx, limited context.Context, err error) error {
	switch {
	case ctx.Err() != nil:
		return fmt.Errorf("sqlstore: not committed: %w: %w", ctx.Err(), err)
	case openRows(err):
		_ = t.rollback()
	case t.rollback() != nil:
		if !errors.Is(err, engine.ErrUnready) || t.idle() || !t.aloneLost(limited) {
			return t.lost(err)
		}
		// The driver closes a connection with open rows when the handler's context ends, as Config.HandlerTimeout has it end.
	case t.store.fault(err).Retryable:
		return engine.Database.Errorf("sqlstore: not committed: %w", err)
	}
	// Either it says so, or the connection answers again, now that ROLLBACK has closed what was open on it.
	return handlerError{fmt.Errorf("sqlstore: not committed: %w: close the rows that a handler opens, before it returns", err)}
}

// blame adds to a handler's error what the handler cannot know: that it ended its transaction, that the connection was
// lost, or that the error is not of this transaction.
func (t *transaction) blame(err error) error {
	ctx, cancel := context.WithTimeout(t.end, t.store.answerWithin)
	defer cancel()
	switch {
	case openRows(err), isBadConn(err) && (t.rollback() == nil || !t.idle() && t.aloneLost(ctx)):
		return t.lookBack(handlerError{fmt.Errorf("%w (was a statement sent while rows were open?)", err)})
	case isBadConn(err):
		return t.lookBack(t.lost(err))
	}
	proven := t.store.db.Proofs.Verify(ctx, &t.Transaction)
	cut := errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
	switch {
	case proven == nil && t.store.fault(err).Elsewhere: // it would have ended this one
		return handlerError{err}
	case proven == nil && t.store.fault(err).Busy:
		return fmt.Errorf("%w (a handler that writes through another connection than its tx waits for the lock of its own transaction)", err)
	case proven == nil:
		return err
	case errors.Is(proven, sql.ErrTxDone):
		return fmt.Errorf("%w (the handler returned: %w)", t.endedByMethod(ctx), err)
	case errors.Is(proven, engine.ErrSwallowed): // not here: the handler returned it; but of which transaction was it?
		if t.claimCommitted(ctx) {
			return fmt.Errorf("%w: it committed the claim, and went on in another transaction (it returned: %w)", dedup.ErrTxEnded, err)
		}
		return err
	case errors.Is(proven, dedup.ErrTxEnded):
		// The database ends a transaction by itself in a deadlock, and SQLite where a statement is cancelled or a disk full.
		// The handler may have hidden that error in one of its own.
		if (cut && t.store.cfg.Dialect != Postgres || t.store.fault(err).MayEnd || t.store.db.Proofs.LateWritesRollBack(ctx, &t.Transaction)) && !t.claimCommitted(ctx) {
			return err
		}
		return fmt.Errorf("%w (the handler returned: %w)", proven, err)
	case t.store.fault(err).Idle:
		return t.lookBack(t.lost(err))
	case cut, t.store.fault(err).Retryable:
		return t.lookBack(err)
	case t.rollback() != nil:
		return t.lookBack(t.lost(err))
	}
	return t.lookBack(handlerError{err}) // such as a statement beside rows that are open
}

// lookBackWait bounds how long lookBack waits for the server to end a transaction whose connection was cut, and how long it asks
// again where other connections are cut as well.
const lookBackWait = 2 * time.Second

// lookBack is for a transaction that its own connection could not prove: it asks on another one whether the handler has committed
// the claim, and returns ErrTxEnded with err in it where it has. When nobody answers, or the server has not ended the transaction
// in time, it returns an InDoubtError. A pool without a free connection is no answer either.
func (t *transaction) lookBack(err error) error {
	if len(t.Claim.Inserted) == 0 {
		return err
	}
	t.Spoilt = true
	t.giveBack() // the pool may have a single connection
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.end), t.store.answerWithin)
	defer cancel()
	for until := time.Now().Add(lookBackWait); ; {
		running, failed := t.store.db.Proofs.InProgress(ctx, t.Claim) // first: of what has ended, the next answer is final
		stands := false
		if failed == nil {
			stands, failed = t.store.db.Proofs.Committed(ctx, t.store.cfg.DB, t.Claim)
		}
		switch {
		case failed == nil && stands:
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

// told is for every error that InTx returns after a handler ran: when the handler may have committed the claim, it is an InDoubtError.
func (t *transaction) told(err error) error {
	var already *dedup.InDoubtError
	if !errors.Is(err, dedup.ErrTxEnded) || errors.Is(err, dedup.ErrRolledBack) || errors.As(err, &already) {
		return err
	}
	return t.inDoubt(err)
}

// committed is InDoubtError.Committed. It answers true when it cannot ask: the message then stays in doubt.
func (t *transaction) committed(ctx context.Context, tx any) (bool, error) {
	asked, ok := tx.(*sql.Tx)
	if !ok || len(t.Claim.Inserted) == 0 {
		return true, nil
	}
	stands, err := t.store.db.Proofs.CommittedBefore(ctx, asked, t.Claim)
	return stands, t.store.claimError(err)
}

// idle reports that the handler may have been idle for longer than the server allows.
func (t *transaction) idle() bool {
	limit := t.store.cfg.IdleInTxTimeout
	return limit > 0 && time.Since(t.handed) >= limit && t.store.cfg.Dialect != SQLite
}

// aloneLost reports that the driver has given up this connection, and that others work: go-sql-driver does so where rows are open
// when the next statement is sent, and returns the same error as for a connection that is lost.
func (t *transaction) aloneLost(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, engine.PingWait)
	defer cancel()
	return t.store.cfg.Dialect == MySQL && t.store.cfg.DB.PingContext(ctx) == nil
}

// claimCommitted reports that the claim is committed, or that this cannot be found out. It rolls back first.
func (t *transaction) claimCommitted(ctx context.Context) bool {
	if len(t.Claim.Inserted) == 0 {
		return false
	}
	_ = t.rollback() // there may be nothing to roll back
	stands, err := t.store.db.Proofs.Committed(ctx, t.Conn, t.Claim)
	return stands || err != nil
}

// lost is for a connection that err has shown to be gone while a handler had it. Where the server may have cut it because the
// handler was idle for too long, another attempt would end as this one did.
func (t *transaction) lost(err error) error {
	if t.store.fault(err).Idle || t.idle() {
		return handlerError{fmt.Errorf("sqlstore: connection lost after the handler had it for %v, as the server ends a transaction "+
			"that stands idle for longer than Config.IdleInTxTimeout, %v: %w", time.Since(t.handed).Round(time.Millisecond), t.store.cfg.IdleInTxTimeout, err)}
	}
	return engine.Database.Errorf("sqlstore: connection lost before COMMIT: %w", err)
}
