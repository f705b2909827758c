package watermilltx

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"time"

	watermillsql "github.com/ThreeDotsLabs/watermill-sql/v3/pkg/sql"

	consumerdriver "github.com/txonce/txonce/consumer/driver"
	"github.com/txonce/txonce/dedup"
	dedupdriver "github.com/txonce/txonce/dedup/driver"
)

// joiningStore is a Store that claims in the transaction that watermill-sql's subscriber received the message in. For
// other contexts it is the Store inside.
//
// That transaction is dangerous in three ways. watermill-sql delivers a nacked message again in the same transaction,
// so every attempt has a savepoint. After a serialization failure every further attempt in that transaction would fail,
// so it is given up, see doomed. And watermill-sql COMMITS it, instead of rolling it back, when AckDeadline passes or
// the subscriber is closed while the handler still runs: that would commit a part of the effect, with its claim. So
// while an attempt runs the transaction holds a cursor that makes COMMIT fail.
type joiningStore struct {
	dedup.Store[*sql.Tx]
	consumerdriver.ParkingLot[*sql.Tx]
	dedupdriver.Registrar
	verifier dedupdriver.TxVerifier[*sql.Tx]
}

// newJoiningStore returns store as a joiningStore, or an error if store lacks some of its methods.
func newJoiningStore(store dedup.Store[*sql.Tx]) (dedup.Store[*sql.Tx], error) {
	s := &joiningStore{Store: store}
	var parks, registers, verifies bool
	s.ParkingLot, parks = store.(consumerdriver.ParkingLot[*sql.Tx])
	s.Registrar, registers = store.(dedupdriver.Registrar)
	s.verifier, verifies = store.(dedupdriver.TxVerifier[*sql.Tx])
	if !parks || !registers || !verifies {
		return nil, fmt.Errorf("watermilltx: Config.Join: want a *sqlstore.Store, or a type that embeds one; a %T lacks some of its methods", store)
	}
	return s, nil
}

// joinedTx is the state of the transaction of one delivery.
type joinedTx struct {
	// doomed means that the transaction cannot be committed: it still holds the cursor of an attempt. watermill-sql
	// ends it only when the message is acked. Then its own statement and COMMIT fail.
	doomed bool
}

// Statements of an attempt. COMMIT reads a cursor WITH HOLD, and reading this one fails with an error that says why.
// Its expression is volatile, so that PostgreSQL does not evaluate it earlier. It needs no table and no privilege.
const (
	beginAttempt = `SAVEPOINT txonce_attempt; ` +
		`DECLARE txonce_attempt_is_running CURSOR WITH HOLD FOR ` +
		`SELECT CAST('txonce: COMMIT refused, a handler is still running in this transaction' || substr(CAST(random() AS text), 1, 0) AS integer)`
	keepAttempt = `CLOSE txonce_attempt_is_running; RELEASE SAVEPOINT txonce_attempt`
	// which also closes the cursor
	undoAttempt = `ROLLBACK TO SAVEPOINT txonce_attempt; RELEASE SAVEPOINT txonce_attempt`
)

// undoTimeout bounds undoAttempt, which also runs after the message's context has ended.
const undoTimeout = 10 * time.Second

// VerifyTx implements driver.TxVerifier. Each of watermill-sql's transactions has one message, and attempt finds out
// what its handler did.
func (s *joiningStore) VerifyTx(ctx context.Context, tx *sql.Tx) error {
	if ctx.Value(runKey{}) != nil {
		return nil
	}
	return s.verifier.VerifyTx(ctx, tx)
}

// Retryable implements dedup.Store.
func (s *joiningStore) Retryable(err error) bool {
	var d *doomedError
	return errors.As(err, &d) || s.Store.Retryable(err)
}

// InTx implements dedup.Store. Its effect is final when watermill-sql has committed, together with the acknowledgement.
func (s *joiningStore) InTx(ctx context.Context, recs []dedup.Record,
	fn func(tx *sql.Tx, claims []dedup.Claim) error,
) error {
	r, _ := ctx.Value(runKey{}).(*run)
	if r == nil { // a replay of a dead letter
		return s.Store.InTx(ctx, recs, fn)
	}
	tx, ok := watermillsql.TxFromContext(ctx)
	if !ok {
		return &doomedError{errors.New("watermilltx: Config.Join is set, and the message carries no transaction: does it come from watermill-sql/v3's subscriber?")}
	}
	if r.tx.doomed {
		return &doomedError{errors.New("watermilltx: this delivery's transaction has failed")}
	}
	if _, err := tx.ExecContext(ctx, beginAttempt); err != nil {
		r.tx.doomed = ctx.Err() == nil && aborted(err)
		return &doomedError{fmt.Errorf("watermilltx: begin an attempt in watermill-sql's transaction: %w", err)}
	}
	err := s.attempt(ctx, tx, recs, fn)
	if err == nil {
		return nil
	}
	return s.undo(ctx, tx, r, err)
}

// attempt runs between the savepoint and its release.
func (s *joiningStore) attempt(ctx context.Context, tx *sql.Tx, recs []dedup.Record,
	fn func(tx *sql.Tx, claims []dedup.Claim) error,
) (err error) {
	claims := []dedup.Claim{}
	if len(recs) > 0 {
		if claims, err = s.Store.Claim(ctx, tx, recs); err != nil {
			return err
		}
	}
	if err := fn(tx, claims); err != nil { // the consumer turns a panic of the user's code into an error
		return err
	}
	if err := context.Cause(ctx); err != nil {
		return err
	}
	if _, err := tx.ExecContext(ctx, keepAttempt); err != nil {
		if aborted(err) { // %v, because an aborted transaction is not the database's fault
			return fmt.Errorf("%w: a statement failed or ended the transaction, and the handler returned nil: %v", dedup.ErrTxEnded, err) //nolint:errorlint // see above
		}
		return fmt.Errorf("watermilltx: keep an attempt: %w", err)
	}
	return nil
}

// undo rolls an attempt back, so that the next one can use the transaction. If it cannot, or if the failure is the
// database's, the cursor stays and the transaction is doomed.
func (s *joiningStore) undo(ctx context.Context, tx *sql.Tx, r *run, err error) error {
	if s.Store.Retryable(err) {
		r.tx.doomed = true
		return err
	}
	limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTimeout)
	defer cancel()
	if _, undone := tx.ExecContext(limited, undoAttempt); undone != nil {
		r.tx.doomed = true
		if errors.Is(err, dedup.ErrTxEnded) {
			return err
		}
		return &doomedError{fmt.Errorf("watermilltx: undo an attempt: %w; it failed with: %w", undone, err)}
	}
	return err
}

// doomedError is the fault of the transaction, and not of the message.
type doomedError struct{ err error }

func (e *doomedError) Error() string { return e.err.Error() }
func (e *doomedError) Unwrap() error { return e.err }

// aborted reports whether err proves that the transaction cannot be committed any more: it has ended, or the server
// refused a statement. PostgreSQL then commits nothing of the transaction.
func aborted(err error) bool {
	var answer interface{ SQLState() string } // of PostgreSQL's drivers
	return errors.As(err, &answer) || errors.Is(err, sql.ErrTxDone) || errors.Is(err, driver.ErrBadConn)
}
