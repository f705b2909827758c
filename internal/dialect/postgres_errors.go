package dialect

import "strings"

// RefusedPostgres reports whether an error with this SQLSTATE refuses the user, the database name or a permission. Retrying does
// not help.
func RefusedPostgres(code string) bool {
	return strings.HasPrefix(code, "28") || code == "3D000" || code == "42501"
}

// RetryablePostgres reports whether an error with this SQLSTATE is a failure of the database or temporary. The same work may
// succeed later, so no message is parked for it.
func RetryablePostgres(code string) bool {
	switch code {
	case "25P02": // an earlier statement failed, and its code decides
		return false
	case "26000", // a prepared statement is missing: a pooler switched the session
		"3F000",          // a schema is missing: a deployment, as with class 42
		"40001", "40P01", // serialisation failure, deadlock
		"40003", // statement completion unknown
		"55P03": // lock timeout
		return true
	}
	if len(code) != 5 {
		return false
	}
	switch code[:2] {
	case "08", // connection
		"25", // transaction state, such as a read-only standby after a failover
		"42", // missing table or column, no permission: a deployment, not a message
		"53", // out of disk, memory, connections
		"57", // shutdown, cancelled by an operator or a timeout
		"58", // I/O
		"XX": // internal errors, corruption
		return true
	}
	return false
}

// AmbiguousPostgres reports whether an error with this SQLSTATE, returned for a handler's statement, is Retryable but may still
// be the fault of one message: its statement may be wrong in itself, or exceed a limit.
func AmbiguousPostgres(code string) bool {
	switch code {
	case "25006", "25P02": // a read-only server; an earlier statement failed
		return false
	case "3F000", // a schema is missing
		"53400", // a configured limit, such as that of temporary files
		"57014", // the statement was cancelled: statement_timeout, or a person
		"58P01": // a library that is not installed
		return true
	}
	return strings.HasPrefix(code, "42") || strings.HasPrefix(code, "25") || strings.HasPrefix(code, "XX")
}

// CommitRefusedPostgres reports whether an error that answers COMMIT says that nothing was committed, for example because a deferred
// constraint or trigger failed. An error that ends the session, and one of the excluded classes, may come from a pooler that has
// passed COMMIT on: the outcome is then unknown. severity may be in the server's language.
func CommitRefusedPostgres(severity, code string) bool {
	if code == "25P03" { // the server has ended the idle transaction before COMMIT arrived
		return true
	}
	if severity == "FATAL" || severity == "PANIC" || len(code) != 5 {
		return false
	}
	switch code {
	case "25P04", // transaction_timeout, which poolers have too
		"40003": // statement completion unknown
		return false
	}
	switch code[:2] {
	case "08", "57", "58", "XX": // connection, shutdown and cancellation, I/O, internal errors
		return false
	}
	return true
}

// UndefinedPostgres reports whether an error with this SQLSTATE says that a table, column or schema is missing.
func UndefinedPostgres(code string) bool {
	return code == "42P01" || code == "42703" || code == "3F000"
}

// CollidedPostgres reports whether an error with this SQLSTATE is a deadlock, or a conflict above READ COMMITTED. The server rolled the
// transaction back.
func CollidedPostgres(code string) bool { return code == "40P01" || code == "40001" }
