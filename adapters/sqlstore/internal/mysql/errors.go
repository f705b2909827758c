package mysql

import (
	"reflect"
	"strings"

	"github.com/txonce/txonce/adapters/sqlstore/internal/engine"
	"github.com/txonce/txonce/internal/dialect"
)

// Errors of the server, by number.
const (
	lockWaitTimeout  = 1205
	statementTimeout = 1969 // MariaDB's max_statement_time
	noSuchTable      = 1146
	noSuchColumn     = 1054
	noSuchSavepoint  = 1305
	deadlock         = 1213
	syntaxError      = 1064
	idleTooLong      = 4031 // MySQL's; MariaDB cuts the connection in silence
)

// Fault implements engine.Errors. InFlight is asked about the claim's own statements only. A failed statement leaves the transaction as
// it was before it, but for a deadlock, which ends it. No constraint is checked at COMMIT.
func (d *DB) Fault(err error) engine.Fault {
	n, lost := number(err), connectionLost(err)
	retryable := dialect.RetryableMySQL(n) || lost
	f := engine.Fault{
		InFlight: n == lockWaitTimeout || n == statementTimeout, Elsewhere: lost, MayEnd: retryable, Idle: n == idleTooLong,
		Undefined: undefined(err), Collided: n == deadlock,
		Retryable: retryable, Ambiguous: dialect.AmbiguousMySQL(n), Refused: dialect.RefusedMySQL(n),
	}
	switch n {
	case deadlock, 1040, 1045, 1049, 1129, 1130, 1203, 1226, 1698: // the others belong to the beginning of a connection
		f.Elsewhere = true
	}
	return f
}

// undefined reports that a table or column is missing.
func undefined(err error) bool {
	n := number(err)
	return n == noSuchTable || n == noSuchColumn
}

// number finds the server's error number in err without importing a driver; 0: there is none. go-sql-driver's
// *MySQLError has it in a field, so that no interface finds it.
func number(err error) (n uint16) {
	engine.Walk(err, func(err error) bool {
		v := reflect.ValueOf(err)
		if v.Kind() == reflect.Pointer && !v.IsNil() {
			v = v.Elem()
		}
		if v.Kind() != reflect.Struct || v.Type().Name() != "MySQLError" {
			return false
		}
		if f := v.FieldByName("Number"); f.IsValid() && f.CanUint() {
			n = uint16(f.Uint())
		}
		return true
	})
	return n
}

// connectionLost tells what go-sql-driver says of a connection that was cut while it was in use, mysql.ErrInvalidConn.
func connectionLost(err error) bool {
	return engine.Walk(err, func(err error) bool {
		return strings.HasSuffix(reflect.TypeOf(err).String(), "errors.errorString") && err.Error() == "invalid connection"
	})
}
