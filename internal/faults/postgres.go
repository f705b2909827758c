package faults

import (
	"github.com/txonce/txonce/dedup/driver"
)

// postgresCodes are SQLSTATEs whose class differs from that of their first two characters.
var postgresCodes = map[string]Class{
	"25006": server,
	"25P02": aborted,
	"25P03": idleLimit,
	"25P04": timeLimit, // transaction_timeout
	"26000": session,   // a prepared statement is missing: a pooler switched the session
	"3D000": access,
	"3F000": deployment, // a schema is missing
	// transaction rollback, serialization failure, deadlock
	"40000": contention, "40001": contention, "40P01": contention,
	"40003": connection, // statement completion unknown
	"42501": permission,
	"42P05": session, // a prepared statement is there already: a pooler switched the session
	"53400": limit,
	"55006": contention, // in use by another session
	"55P03": contention, // lock_timeout, NOWAIT
	"57014": timeLimit,  // statement_timeout, or a person
	"58P01": internal,   // a library that is not installed
	"72000": contention, // snapshot too old
}

// postgresClasses are the first two characters of SQLSTATEs. All others are the statement's own fault.
var postgresClasses = map[string]Class{
	"08": connection,
	"25": transaction,
	"28": access,
	"42": deployment,
	"53": resources,
	"57": connection, // shutdown
	"58": storage,
	"XX": internal,
}

// OfPostgres returns the class of a SQLSTATE; "": there is none.
func OfPostgres(code string) Class {
	if len(code) != 5 {
		return unknown
	}
	if c, ok := postgresCodes[code]; ok {
		return c
	}
	if c, ok := postgresClasses[code[:2]]; ok {
		return c
	}
	return data
}

// UndefinedPostgres reports whether an error with this SQLSTATE says that a table, column or schema is missing.
func UndefinedPostgres(code string) bool {
	return code == "42P01" || code == "42703" || code == "3F000"
}

// CollidedPostgres reports whether an error with this SQLSTATE is a deadlock, or a conflict above READ COMMITTED. The
// server rolled the transaction back.
func CollidedPostgres(code string) bool { return code == "40P01" || code == "40001" }

// CommitRefusedPostgres reports whether an error that answers COMMIT says that nothing was committed, for example
// because a deferred constraint or trigger failed. An error that ends the session may come from a pooler that has
// passed COMMIT on: the outcome is then unknown. severity may be in the server's language.
func CommitRefusedPostgres(severity, code string) bool {
	switch c := OfPostgres(code); {
	case c == driver.FaultIdleLimit: // the server has ended the idle transaction before COMMIT arrived
		return true
	case c == unknown, severity == "FATAL", severity == "PANIC":
		return false
	default:
		return !Undecided(c)
	}
}
