package postgres

import (
	"cmp"
	"errors"
	"reflect"

	"github.com/txonce/txonce/adapters/sqlstore/internal/engine"
	"github.com/txonce/txonce/dedup/driver"
	"github.com/txonce/txonce/internal/faults"
)

const (
	inAbortedTx    = "25P02" // an earlier statement of the transaction failed
	noSavepoint    = "3B001" // the transaction has no savepoint of this name
	divisionByZero = "22012" // see dialect.PostgresSession.RenewAndProbe
	noTransaction  = "25P01" // no transaction is open
)

// Fault implements engine.Errors. A failed statement breaks its transaction until a rollback to a savepoint. Only
// COMMIT and ROLLBACK end a transaction.
func (d *DB) Fault(err error) engine.Fault {
	state := sqlState(err)
	class := faults.OfPostgres(state)
	if stalePlan(err) {
		class = driver.FaultSession
	}
	return engine.Fault{
		Class:    class,
		InFlight: state == "55P03", Aborted: state == inAbortedTx, Elsewhere: state != "",
		Idle:         state == "25P03", // 25P04, transaction_timeout, says nothing about idle time
		Undefined:    faults.UndefinedPostgres(state),
		NotCommitted: faults.CommitRefusedPostgres(severity(err), state),
		Collided:     faults.CollidedPostgres(state),
		Retryable:    faults.Postgres.Retryable(class),
		Ambiguous:    faults.Postgres.Ambiguous(class),
		Refused:      faults.Postgres.Refused(class),
		ReadOnly:     class == driver.FaultServer,
	}
}

// answer is a server's error, as pgx and lib/pq report it.
type answer interface{ SQLState() string }

// sqlState returns the SQLSTATE in err, or "".
func sqlState(err error) string {
	var e answer
	if !errors.As(err, &e) {
		return ""
	}
	return e.SQLState()
}

// stalePlan reports that a migration changed the result of a prepared statement. Drivers prepare the statement again
// after this error. PostgreSQL uses the same SQLSTATE for unsupported features, and its text depends on the server's
// language.
func stalePlan(err error) bool {
	return sqlState(err) == "0A000" && field(err, "Routine") == "RevalidateCachedQuery"
}

// severity returns the severity in err. Only pgx reports it untranslated, and PgBouncer does not send it.
func severity(err error) string {
	return cmp.Or(field(err, "SeverityUnlocalized"), field(err, "Severity"))
}

// field returns a field of the server's error in err, or "".
func field(err error, name string) string {
	var e answer
	if !errors.As(err, &e) {
		return ""
	}
	v := reflect.Indirect(reflect.ValueOf(e))
	if v.Kind() != reflect.Struct {
		return ""
	}
	if f := v.FieldByName(name); f.Kind() == reflect.String {
		return f.String()
	}
	return ""
}
