package postgres

import (
	"errors"
	"reflect"
	"strings"

	"github.com/txonce/txonce/adapters/sqlstore/internal/engine"
	"github.com/txonce/txonce/internal/dialect"
)

const (
	inAbortedTx   = "25P02" // an earlier statement of the transaction failed
	noSavepoint   = "3B001" // the transaction has no savepoint of this name
	noTransaction = "25P01" // no transaction is open
)

// Fault implements engine.Errors. A failed statement breaks its transaction until a rollback to a savepoint. Only COMMIT and
// ROLLBACK end a transaction.
func (d *DB) Fault(err error) engine.Fault {
	state := sqlState(err)
	return engine.Fault{
		InFlight: state == "55P03", Aborted: state == inAbortedTx, Elsewhere: state != "",
		Idle:       state == "25P03" || state == "25P04", // idle_in_transaction_session_timeout and transaction_timeout
		Undefined:  dialect.UndefinedPostgres(state),
		Constraint: constraint(state),
		Collided:   dialect.CollidedPostgres(state),
		Retryable:  dialect.RetryablePostgres(state) || stalePlan(err) || state == "3F000", // a schema is missing
		Ambiguous:  strings.HasPrefix(state, "42") || state == "3F000",                     // a deployment may lack a table or GRANT, or the handler is wrong
		Refused:    dialect.RefusedPostgres(state),
	}
}

// constraint reports whether the handler caused the error of a COMMIT: a deferred constraint or trigger may use any SQLSTATE.
// Errors about the server itself, and errors without an SQLSTATE, leave the outcome open.
func constraint(state string) bool {
	if len(state) != 5 {
		return false
	}
	switch state[:2] {
	case "08", "40", "53", "57", "58", "XX":
		return false
	}
	return state != "55P03"
}

// sqlState returns the SQLSTATE in err, as pgx and lib/pq report it, or "".
func sqlState(err error) string {
	var e interface{ SQLState() string }
	if !errors.As(err, &e) {
		return ""
	}
	return e.SQLState()
}

// stalePlan reports that a migration changed the result of a prepared statement. Drivers prepare the statement again after this
// error. PostgreSQL uses the same SQLSTATE for unsupported features, and its text depends on the server's language.
func stalePlan(err error) bool {
	return sqlState(err) == "0A000" && engine.Walk(err, func(err error) bool {
		v := reflect.Indirect(reflect.ValueOf(err))
		if v.Kind() != reflect.Struct {
			return false
		}
		routine := v.FieldByName("Routine")
		return routine.IsValid() && routine.Kind() == reflect.String && routine.String() == "RevalidateCachedQuery"
	})
}
