package pgxstore

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/dedup/driver"
	"github.com/txonce/txonce/internal/claims"
	"github.com/txonce/txonce/internal/faults"
	"github.com/txonce/txonce/observe"
)

// database marks the errors of this package's stores that their database caused.
const database = claims.Owner("pgxstore")

// faultClasses tells consumers and relays what an error means.
type faultClasses struct{}

// Retryable implements dedup.Store.
func (faultClasses) Retryable(err error) bool {
	if errors.As(err, new(foreignError)) || errors.Is(err, dedup.ErrTxEnded) || isCopyFailed(err) {
		return false
	}
	if database.Caused(err) {
		return true
	}
	return faults.Postgres.Retryable(class(err))
}

// Ambiguous implements driver.FaultClassifier. The error of a changed cached plan is not Ambiguous: InTx closes the
// connection that has the plan, so any message succeeds when it is retried.
func (faultClasses) Ambiguous(err error) bool {
	if errors.As(err, new(foreignError)) || database.Caused(err) || isCopyFailed(err) {
		return false
	}
	return faults.Postgres.Ambiguous(class(err))
}

// FaultClass implements driver.FaultClassifier. The class of an error that was marked as the database's is its code's,
// if it has one: the answer to COMMIT says why the transaction was not committed.
func (faultClasses) FaultClass(err error) driver.FaultClass {
	switch c := class(err); {
	case errors.As(err, new(foreignError)), errors.Is(err, dedup.ErrTxEnded), isCopyFailed(err):
		return driver.FaultUnknown
	case c == driver.FaultUnknown && database.Caused(err):
		return driver.FaultConnection
	default:
		return c
	}
}

// Result implements driver.FaultClassifier.
func (faultClasses) Result(err error) observe.Result {
	switch {
	case faults.CollidedPostgres(sqlState(err)):
		return observe.Deadlock
	case errors.Is(err, errCommitUnknown), errors.As(err, new(*dedup.InDoubtError)):
		return observe.CommitUnknown
	}
	return observe.RolledBack
}

// errCommitUnknown says that the answer to COMMIT was lost.
var errCommitUnknown = errors.New("the answer to COMMIT was lost")

// foreignError is a handler's error that came from another database. It says nothing about this one.
type foreignError struct{ error }

func (e foreignError) Unwrap() error { return e.error }

// class returns the class of a server's error, whatever store or handler returned it.
func class(err error) driver.FaultClass {
	if isStalePlan(err) {
		return driver.FaultSession
	}
	return faults.OfPostgres(sqlState(err))
}

// isStalePlan reports whether a statement failed because it was prepared before a migration that changed the type of
// its result. The code has other causes too. The message's text cannot tell them apart, because it is in the server's
// language.
func isStalePlan(err error) bool {
	pg, ok := errors.AsType[*pgconn.PgError](err)
	return ok && pg.Code == "0A000" && pg.Routine == "RevalidateCachedQuery"
}

// blamesSession reports whether a claim failed because of its session, so that another connection may succeed: the role
// has no permission, transactions are read-only, or a statement was prepared before a migration or is not prepared any
// more.
func blamesSession(err error) bool {
	switch sqlState(err) {
	case "42501", "25006", "26000":
		return true
	}
	return isStalePlan(err)
}

// isCopyFailed reports whether the client ended a COPY: a value could not be encoded, or the source of the rows failed.
// The server answers with the code that it also has for a statement that it cancelled.
func isCopyFailed(err error) bool {
	pg, ok := errors.AsType[*pgconn.PgError](err)
	return ok && pg.Code == "57014" && pg.Routine == "CopyGetData"
}

// claimError classifies an error of a claim. The handler has not run yet, so the message is not to blame.
func claimError(err error) error {
	switch code := sqlState(err); {
	case err == nil, errors.Is(err, dedup.ErrKeyCollision), database.Caused(err):
		return err
	case code == "55P03": // a shorter wait, or the session's own lock_timeout; %w would make this error Retryable
		return fmt.Errorf("%w: %v", dedup.ErrInFlight, err) //nolint:errorlint // see above
	case code == "57014", code == "25P04":
		return fmt.Errorf("%w, or the database is slow: the session's statement_timeout or transaction_timeout ended the wait: %v", dedup.ErrInFlight, err) //nolint:errorlint // as above
	case isUndefined(err):
		return database.Errorf("%w: %w; %s", dedup.ErrSchema, err, howToMigrate)
	}
	return database.Errorf("pgxstore: claim: %w", err)
}

// sweepError is claimError for reads of the only row of txonce_sweep.
func sweepError(err error) error {
	if errors.Is(err, pgx.ErrNoRows) {
		return database.Errorf("%w: the one row of table txonce_sweep, which records until when keys were forgotten, is missing: INSERT INTO txonce_sweep (forgotten_until) VALUES (now())", dedup.ErrSchema)
	}
	return claimError(err)
}

// stepError adds the name of the failed step to err. The step ran in a transaction of the handler, whose earlier
// statements may be to blame, so the code of the error decides. A missing table is always the database's fault.
func stepError(step string, err error) error {
	switch {
	case err == nil:
		return nil
	case isUndefined(err):
		return claimError(err)
	}
	return fmt.Errorf("pgxstore: %s: %w", step, err)
}

const howToMigrate = "apply txonce's migrations: txonce migrate up, pgxstore.Migrate(ctx, pool, schema), or the files of package migrations"

// isIdle reports whether the server ended the session because its transaction was idle too long.
func isIdle(err error) bool { return sqlState(err) == "25P03" }

// idleError is Retryable and Ambiguous: the handler was too slow between two statements, or its process was suspended.
func idleError(limit time.Duration, err error) error {
	return fmt.Errorf("pgxstore: the transaction was idle between two statements for longer than Config.IdleInTxTimeout (%v) "+
		"or the session's idle_in_transaction_session_timeout, and the server ended it: %w", limit, err)
}

// isDefinite reports whether err, the answer to COMMIT, proves that nothing was committed. After any other error the
// outcome is unknown.
func isDefinite(err error) bool {
	pg, ok := errors.AsType[*pgconn.PgError](err)
	return ok && faults.CommitRefusedPostgres(severity(pg), pg.Code)
}

// severity returns the severity of an error, untranslated if a server has sent it. PgBouncer sends only the one that
// servers translate.
func severity(err *pgconn.PgError) string { return cmp.Or(err.SeverityUnlocalized, err.Severity) }

// isUndefined reports whether a table, a column or the schema is missing.
func isUndefined(err error) bool { return faults.UndefinedPostgres(sqlState(err)) }

// sqlState returns the code of the server's error; empty: there is none.
func sqlState(err error) string {
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok {
		return pg.Code
	}
	return ""
}
