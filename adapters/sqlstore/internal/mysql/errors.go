package mysql

import (
	"reflect"
	"strings"

	"github.com/txonce/txonce/adapters/sqlstore/internal/engine"
	"github.com/txonce/txonce/dedup/driver"
	"github.com/txonce/txonce/internal/faults"
)

// Error numbers of the server.
const (
	lockWaitTimeout  = 1205
	statementTimeout = 1969 // MariaDB's max_statement_time
	noSuchTable      = 1146
	noSuchColumn     = 1054
	noSuchSavepoint  = 1305
	deadlock         = 1213
	syntaxError      = 1064
	idleTooLong      = 4031 // from MySQL; MariaDB closes the connection without an error
)

// Fault implements engine.Errors. InFlight is used for the claim's own statements only. A failed statement undoes only
// itself, except for a deadlock, which ends the transaction. The server checks no constraint at COMMIT.
func (d *DB) Fault(err error) engine.Fault {
	n, lost := number(err), connectionLost(err)
	class := faults.OfMySQL(n)
	if lost {
		class = driver.FaultConnection
	}
	if packetTooLarge(err) {
		class = driver.FaultData
	}
	retryable := faults.MySQL.Retryable(class)
	f := engine.Fault{
		Class:    class,
		InFlight: n == lockWaitTimeout || n == statementTimeout, Elsewhere: lost, MayEnd: retryable,
		Idle:      n == idleTooLong,
		Undefined: undefined(err), Collided: n == deadlock,
		Retryable: retryable, Ambiguous: faults.MySQL.Ambiguous(class), Refused: faults.MySQL.Refused(class),
		ReadOnly: class == driver.FaultServer,
	}
	switch n {
	case deadlock, 1040, 1045, 1049, 1129, 1130, 1203, 1226, 1698: // all but the deadlock occur while connecting
		f.Elsewhere = true
	}
	return f
}

// undefined reports that a table or column is missing.
func undefined(err error) bool {
	n := number(err)
	return n == noSuchTable || n == noSuchColumn
}

// number returns the server's error number in err, or 0. It imports no driver: *MySQLError of go-sql-driver has the
// number in a field, so it is read by reflection.
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

// connectionLost reports whether err is mysql.ErrInvalidConn, which go-sql-driver returns for a connection that broke
// while in use.
func connectionLost(err error) bool {
	return engine.Walk(err, func(err error) bool {
		return strings.HasSuffix(reflect.TypeOf(err).String(), "errors.errorString") &&
			err.Error() == "invalid connection"
	})
}

// packetTooLarge reports whether err is mysql.ErrPktTooLarge: go-sql-driver has sent nothing.
func packetTooLarge(err error) bool {
	return engine.Walk(err, func(err error) bool {
		return strings.HasSuffix(reflect.TypeOf(err).String(), "errors.errorString") && strings.HasPrefix(err.Error(),
			"packet for query is too large")
	})
}
