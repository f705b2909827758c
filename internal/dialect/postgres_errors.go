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
	case "53400", // a configured limit, such as that of temporary files
		"57014", // the statement was cancelled: statement_timeout, or a person
		"58P01": // a library that is not installed
		return true
	}
	return strings.HasPrefix(code, "42") || strings.HasPrefix(code, "25") || strings.HasPrefix(code, "XX")
}

// UndefinedPostgres reports whether an error with this SQLSTATE says that a table, column or schema is missing.
func UndefinedPostgres(code string) bool {
	return code == "42P01" || code == "42703" || code == "3F000"
}

// CollidedPostgres reports whether an error with this SQLSTATE is a deadlock, or a conflict above READ COMMITTED. The server rolled the
// transaction back.
func CollidedPostgres(code string) bool { return code == "40P01" || code == "40001" }
