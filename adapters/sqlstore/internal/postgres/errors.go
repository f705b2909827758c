package postgres

import (
	"errors"
	"reflect"
	"strings"

	"github.com/txonce/txonce/adapters/sqlstore/internal/engine"
	"github.com/txonce/txonce/internal/dialect"
)

const inAbortedTx = "25P02" // a statement of the transaction failed before this one

// Fault implements engine.Errors. A statement that fails breaks its transaction, which only a savepoint heals, and nothing ends it but
// COMMIT and ROLLBACK.
func (d *DB) Fault(err error) engine.Fault {
	state := sqlState(err)
	return engine.Fault{
		InFlight: state == "55P03", Aborted: state == inAbortedTx, Elsewhere: state != "",
		Idle:       state == "25P03" || state == "25P04", // of a transaction; the latter is transaction_timeout
		Undefined:  undefined(state),
		Constraint: constraint(state),
		Collided:   state == "40P01",
		Retryable:  dialect.RetryablePostgres(state) || stalePlan(err) || state == "3F000", // a schema is missing
		Ambiguous:  strings.HasPrefix(state, "42") || state == "3F000",                     // a deployment may have forgotten a table or a GRANT, or one branch of a handler may be wrong
		Refused:    dialect.RefusedPostgres(state),
	}
}

func undefined(state string) bool { return state == "42P01" || state == "42703" || state == "3F000" }

// constraint: whatever a deferred constraint or trigger says at COMMIT is definite, and the handler's doing, under whatever
// SQLSTATE. What the server says of itself, and what no server said, leaves the outcome open.
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

// sqlState finds the SQLSTATE in err, in the way that pgx and lib/pq tell it; empty: there is none.
func sqlState(err error) string {
	var e interface{ SQLState() string }
	if !errors.As(err, &e) {
		return ""
	}
	return e.SQLState()
}

// stalePlan reports that a statement was prepared before a migration, and that its result has changed since. Drivers prepare it
// anew after this error. The SQLSTATE alone is also that of what PostgreSQL cannot do; the text is in the server's language.
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
