package sqlstore

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"strings"

	"github.com/txonce/txonce/adapters/sqlstore/internal/engine"
	"github.com/txonce/txonce/dedup"
	dedupdriver "github.com/txonce/txonce/dedup/driver"
	"github.com/txonce/txonce/observe"
)

// Retryable implements dedup.Store. Among errors of a handler's own statements, it recognizes errors with an SQLSTATE,
// a MySQL error number or a SQLite result code. A lost connection has none of these: InTx detects it and returns an
// error that wraps the handler's, so pass the error of InTx to Retryable. A plain network error is not Retryable,
// because a handler may have got it from another service.
func (s *Store) Retryable(err error) bool {
	switch {
	case err == nil, errors.Is(err, dedup.ErrTxEnded), errors.Is(err, dedup.ErrInFlight),
		errors.As(err, new(handlerError)):
		return false
	case engine.Database.Caused(err), errors.As(err, new(idleError)), isBadConn(err):
		return true
	}
	return s.fault(err).Retryable
}

// Ambiguous implements driver.FaultClassifier. Errors of the Store's own statements are not ambiguous: these statements
// are the same for every message.
func (s *Store) Ambiguous(err error) bool {
	return s.Retryable(err) && !engine.Database.Caused(err) &&
		(s.fault(err).Ambiguous || errors.As(err, new(idleError)))
}

// FaultClass implements driver.FaultClassifier. The class of an error that was marked as the database's is its code's,
// if it has one: the answer to COMMIT says why the transaction was not committed.
func (s *Store) FaultClass(err error) dedupdriver.FaultClass {
	f := s.fault(err)
	switch {
	case err == nil, errors.Is(err, dedup.ErrTxEnded), errors.Is(err, dedup.ErrInFlight),
		errors.As(err, new(handlerError)):
		return dedupdriver.FaultUnknown
	case f.Class != dedupdriver.FaultIdleLimit && errors.As(err, new(idleError)):
		// the connection may have been lost for another reason
		return dedupdriver.FaultTimeLimit
	case f.Class == dedupdriver.FaultUnknown && (engine.Database.Caused(err) || isBadConn(err)):
		return dedupdriver.FaultConnection
	}
	return f.Class
}

// Result implements driver.FaultClassifier.
func (s *Store) Result(err error) observe.Result {
	switch {
	case err == nil:
		return observe.Committed
	case errors.As(err, new(*dedup.InDoubtError)):
		return observe.CommitUnknown
	case errors.As(err, new(handlerError)): // it may be of another database
		return observe.RolledBack
	case s.fault(err).Collided:
		return observe.Deadlock
	case errors.Is(err, errCommitUnknown):
		return observe.CommitUnknown
	}
	return observe.RolledBack
}

// errCommitUnknown says that the answer to COMMIT was lost, or does not say what has become of the transaction.
var errCommitUnknown = errors.New("COMMIT failed")

func (s *Store) fault(err error) engine.Fault { return s.db.Errors.Fault(err) }

// openRows reports whether a driver refused a statement because the rows of another one are open.
func openRows(err error) bool {
	return engine.Walk(err, func(err error) bool {
		switch text := err.Error(); text {
		case "conn busy", "busy buffer":
			return true
		default:
			return strings.HasPrefix(text, "commands out of sync")
		}
	})
}

func isBadConn(err error) bool {
	return errors.Is(err, driver.ErrBadConn) || errors.Is(err, sql.ErrConnDone)
}

// claimError classifies an error of a claim, or of another statement that does not depend on the message.
func (s *Store) claimError(err error) error {
	switch {
	case err == nil, errors.Is(err, dedup.ErrKeyCollision), errors.Is(err, dedup.ErrInFlight),
		errors.Is(err, dedup.ErrNotDurable), engine.Database.Caused(err):
		return err
	case s.fault(err).InFlight:
		return fmt.Errorf("%w, for more than %v", dedup.ErrInFlight, s.cfg.ClaimTimeout)
	case errors.Is(err, sql.ErrTxDone), errors.Is(err, context.Canceled), s.fault(err).Aborted: // the caller's fault
		return fmt.Errorf("sqlstore: %w", err)
	}
	return engine.Database.Wrap(s.statementError(err))
}

// statementError classifies errors of statements that contain the message's data, in the caller's transaction. Only the
// error's code decides whether such an error is Retryable.
func (s *Store) statementError(err error) error {
	switch {
	case err == nil, engine.Database.Caused(err):
		return err
	case s.fault(err).Undefined:
		return engine.Database.Errorf("%w: %w; %s", dedup.ErrSchema, err, engine.HowToMigrate)
	}
	return fmt.Errorf("sqlstore: %w", err)
}
