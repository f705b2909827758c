package watermilltx

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	watermillsql "github.com/ThreeDotsLabs/watermill-sql/v3/pkg/sql"

	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/dedup"
)

// joining is a Store that claims in the transaction in which watermill-sql has taken a message, if the context belongs to such
// a message, and is the Store behind it otherwise.
//
// That transaction has three habits that a claim must not trust. A nacked message is delivered again in it, so every attempt
// gets a savepoint. After a serialization failure every attempt in it would fail, so it is given up, see doomed. And it is
// COMMITTED, not rolled back, when AckDeadline passes or the subscriber is closed while the handler still runs: half of
// an effect would stand, with its claim. So while an attempt runs the transaction holds a cursor that lets COMMIT fail.
type joining struct {
	dedup.Store[*sql.Tx]
}

// joiningLot is joining over a store that is a parking lot.
type joiningLot struct {
	joining
	consumer.ParkingLot[*sql.Tx]
}

func joinable(store dedup.Store[*sql.Tx]) dedup.Store[*sql.Tx] {
	if lot, ok := store.(consumer.ParkingLot[*sql.Tx]); ok {
		return &joiningLot{joining{store}, lot}
	}
	return &joining{store}
}

// joined is what became of the transaction of one delivery.
type joined struct {
	// doomed says that it cannot be committed: it still holds the cursor of an attempt. watermill-sql ends it only when the message
	// is acked, and then finds that neither its own statement nor COMMIT succeeds.
	doomed bool
}

// Statements of an attempt. A cursor WITH HOLD is read by COMMIT, and reading this one is an error that says why. It is
// volatile, so that PostgreSQL does not read it earlier. It needs no table and no privilege.
const (
	beginAttempt = `SAVEPOINT txonce_attempt; ` +
		`DECLARE txonce_attempt_is_running CURSOR WITH HOLD FOR ` +
		`SELECT CAST('txonce: COMMIT refused, a handler is still running in this transaction' || substr(CAST(random() AS text), 1, 0) AS integer)`
	keepAttempt = `CLOSE txonce_attempt_is_running; RELEASE SAVEPOINT txonce_attempt`
	undoAttempt = `ROLLBACK TO SAVEPOINT txonce_attempt; RELEASE SAVEPOINT txonce_attempt` // and so closes the cursor
)

// answerWithin bounds what should be answered at once, also when the message's own time is over.
const answerWithin = 10 * time.Second

// Register implements dedup.Registrar.
func (s *joining) Register(ctx context.Context, name string, window time.Duration) error {
	if registrar, ok := s.Store.(dedup.Registrar); ok {
		return registrar.Register(ctx, name, window)
	}
	return nil
}

// Retryable implements dedup.Store.
func (s *joining) Retryable(err error) bool {
	var d *doomedError
	return errors.As(err, &d) || s.Store.Retryable(err)
}

// InTx implements dedup.Store: what it commits is final when watermill-sql has committed, together with the acknowledgement.
func (s *joining) InTx(ctx context.Context, recs []dedup.Record, fn func(tx *sql.Tx, claims []dedup.Claim) error) error {
	r, _ := ctx.Value(runKey{}).(*run)
	if r == nil { // somebody replays a dead letter
		return s.Store.InTx(ctx, recs, fn)
	}
	tx, ok := watermillsql.TxFromContext(ctx)
	if !ok {
		return &doomedError{errors.New("watermilltx: Config.Join is set, and the message carries no transaction: does it come from watermill-sql/v3's subscriber?")}
	}
	if r.joined.doomed {
		return &doomedError{errors.New("watermilltx: this delivery's transaction has failed")}
	}
	if _, err := tx.ExecContext(ctx, beginAttempt); err != nil {
		r.joined.doomed = ctx.Err() == nil && failedFor(err)
		return &doomedError{fmt.Errorf("watermilltx: begin an attempt in watermill-sql's transaction: %w", err)}
	}
	err := s.attempt(ctx, tx, recs, fn)
	if err == nil {
		return nil
	}
	return s.undo(ctx, tx, r, err)
}

// attempt is what happens between savepoint and release.
func (s *joining) attempt(ctx context.Context, tx *sql.Tx, recs []dedup.Record, fn func(tx *sql.Tx, claims []dedup.Claim) error) (err error) {
	claims := []dedup.Claim{}
	if len(recs) > 0 {
		if claims, err = s.Store.Claim(ctx, tx, recs); err != nil {
			return err
		}
	}
	if err := call(fn, tx, claims); err != nil {
		return err
	}
	if err := context.Cause(ctx); err != nil {
		return err
	}
	if _, err := tx.ExecContext(ctx, keepAttempt); err != nil {
		if failedFor(err) { // %v: that the transaction is aborted is not the database's fault
			return fmt.Errorf("%w: a statement failed or ended the transaction, and the handler returned nil: %v", dedup.ErrTxEnded, err) //nolint:errorlint // see above
		}
		return fmt.Errorf("watermilltx: keep an attempt: %w", err)
	}
	return nil
}

// call turns a panic into an error, so that the attempt is undone; the consumer has already turned the handler's own into one.
func call(fn func(tx *sql.Tx, claims []dedup.Claim) error, tx *sql.Tx, claims []dedup.Claim) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = &consumer.PanicError{Value: v, Stack: debug.Stack()}
		}
	}()
	return fn(tx, claims)
}

// undo takes an attempt back, and leaves the transaction as it was before, for the next one. Where that is of no use, because
// the failure is the database's, or impossible, the cursor stays: the transaction is doomed.
func (s *joining) undo(ctx context.Context, tx *sql.Tx, r *run, err error) error {
	if s.Store.Retryable(err) {
		r.joined.doomed = true
		return err
	}
	limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), answerWithin)
	defer cancel()
	if _, undone := tx.ExecContext(limited, undoAttempt); undone != nil {
		r.joined.doomed = true
		if errors.Is(err, dedup.ErrTxEnded) {
			return err
		}
		return &doomedError{fmt.Errorf("watermilltx: undo an attempt: %w; it failed with: %w", undone, err)}
	}
	return err
}

// doomedError is nobody's fault but that of the transaction.
type doomedError struct{ err error }

func (e *doomedError) Error() string { return e.err.Error() }
func (e *doomedError) Unwrap() error { return e.err }

// failedFor reports whether err says for certain that the transaction cannot be committed any more, or that its cursor could
// not be closed: the server refused a statement, which aborts a transaction of PostgreSQL and of no other database.
func failedFor(err error) bool {
	var answer interface{ SQLState() string } // of PostgreSQL's drivers
	return errors.As(err, &answer) || errors.Is(err, sql.ErrTxDone) || errors.Is(err, driver.ErrBadConn)
}
