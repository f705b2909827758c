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
)

// Retryable implements dedup.Store. Of the errors of a handler's own statements it knows those with an SQLSTATE or a
// result code of SQLite. A lost connection has neither: InTx finds it out by itself and says so in the error that it
// returns, which is the one to ask about. A network error as such is not taken for the database's, because handlers talk to
// others too.
func (s *Store) Retryable(err error) bool {
	switch {
	case err == nil, errors.Is(err, dedup.ErrTxEnded), errors.Is(err, dedup.ErrInFlight), errors.As(err, new(handlerError)):
		return false
	case engine.Database.Caused(err), isBadConn(err):
		return true
	}
	return s.fault(err).Retryable
}

// Ambiguous implements dedup.FaultClassifier. Of the Store's own statements, which are the same for every message, nothing is.
func (s *Store) Ambiguous(err error) bool {
	return s.Retryable(err) && !engine.Database.Caused(err) && s.fault(err).Ambiguous
}

func (s *Store) fault(err error) engine.Fault { return s.db.Errors.Fault(err) }

// openRows tells what drivers say of a statement that is sent while the rows of another one are open.
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

// claimError classifies an error of a claim, or of another statement that is the same for any message.
func (s *Store) claimError(err error) error {
	switch {
	case err == nil, errors.Is(err, dedup.ErrKeyCollision), errors.Is(err, dedup.ErrInFlight), errors.Is(err, dedup.ErrNotDurable), engine.Database.Caused(err):
		return err
	case s.fault(err).InFlight:
		return fmt.Errorf("%w, for more than %v", dedup.ErrInFlight, s.cfg.ClaimTimeout)
	case errors.Is(err, sql.ErrTxDone), errors.Is(err, context.Canceled), s.fault(err).Aborted: // the caller's doing
		return fmt.Errorf("sqlstore: %w", err)
	}
	return engine.Database.Wrap(s.statementError(err))
}

// statementError is for statements within a transaction of somebody's that carry the message's own bytes: what is
// retryable is left to the database's code.
func (s *Store) statementError(err error) error {
	switch {
	case err == nil, engine.Database.Caused(err):
		return err
	case s.fault(err).Undefined:
		return engine.Database.Errorf("%w: %w; %s", dedup.ErrSchema, err, engine.HowToMigrate)
	}
	return fmt.Errorf("sqlstore: %w", err)
}
