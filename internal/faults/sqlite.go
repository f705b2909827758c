package faults

import "strings"

// sqliteCodes are SQLite's primary result codes. All others are the statement's own fault.
var sqliteCodes = map[int]Class{
	3:  access,             // PERM: no access to the file
	5:  contention,         // BUSY: another connection is writing
	6:  contention,         // LOCKED
	7:  resources,          // NOMEM
	8:  server,             // READONLY
	9:  session,            // INTERRUPT: cancelled
	10: storage,            // IOERR
	11: storage,            // CORRUPT
	13: resources,          // FULL: the disk
	14: access, 26: access, // CANTOPEN, NOTADB
	15: contention, // PROTOCOL: the lock on the write-ahead log
	17: session,    // SCHEMA: changed again and again
	23: permission, // AUTH
}

// OfSQLite returns the class of SQLite's result code, extended or not. text is the error's message: SQLite has one code
// for several kinds of errors.
func OfSQLite(code int, text string) Class {
	if strings.Contains(text, "SQL statements in progress") { // BUSY because rows of a write were left open
		return data
	}
	if c, ok := sqliteCodes[code&0xff]; ok {
		return c
	}
	if code&0xff == 1 { // ERROR: a deployment, or the values
		for _, s := range [...]string{
			"no such table", "no such column", "has no column named", "no such function",
			`": syntax error`,
		} {
			if strings.Contains(text, s) {
				return deployment
			}
		}
	}
	return data
}

// SQLiteConstraint reports whether a constraint failed, which is the message's own fault.
func SQLiteConstraint(code int) bool { return code&0xff == 19 }
