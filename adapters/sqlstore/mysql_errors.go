package sqlstore

import (
	"reflect"
	"strings"

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

// inFlight is asked about the claim's own statements only.
func (d *mysql) inFlight(err error) bool {
	n := mysqlNumber(err)
	return n == lockWaitTimeout || n == statementTimeout
}

func (d *mysql) aborted(error) bool { return false } // a failed statement leaves the transaction as it was before it

func (d *mysql) undefined(err error) bool {
	n := mysqlNumber(err)
	return n == noSuchTable || n == noSuchColumn
}

func (d *mysql) constraint(error) bool { return false } // none is checked at COMMIT

func (d *mysql) retryable(err error) bool {
	return dialect.RetryableMySQL(mysqlNumber(err)) || mysqlConnectionLost(err)
}

// elsewhere: a deadlock ends the transaction, and the others belong to the beginning of a connection.
func (d *mysql) elsewhere(err error) bool {
	switch mysqlNumber(err) {
	case deadlock, 1040, 1045, 1049, 1129, 1130, 1203, 1226, 1698:
		return true
	}
	return mysqlConnectionLost(err)
}

func (d *mysql) mayEnd(err error) bool { return d.retryable(err) }

func (d *mysql) idled(err error) bool { return mysqlNumber(err) == idleTooLong }

func (d *mysql) ambiguous(err error) bool { return dialect.AmbiguousMySQL(mysqlNumber(err)) }

func (d *mysql) refused(err error) bool { return dialect.RefusedMySQL(mysqlNumber(err)) }

// mysqlNumber finds the server's error number in err without importing a driver; 0: there is none. go-sql-driver's
// *MySQLError has it in a field, so that no interface finds it.
func mysqlNumber(err error) (number uint16) {
	walkErrors(err, func(err error) bool {
		v := reflect.ValueOf(err)
		if v.Kind() == reflect.Pointer && !v.IsNil() {
			v = v.Elem()
		}
		if v.Kind() != reflect.Struct || v.Type().Name() != "MySQLError" {
			return false
		}
		if f := v.FieldByName("Number"); f.IsValid() && f.CanUint() {
			number = uint16(f.Uint())
		}
		return true
	})
	return number
}

// mysqlConnectionLost tells what go-sql-driver says of a connection that was cut while it was in use, mysql.ErrInvalidConn.
func mysqlConnectionLost(err error) bool {
	return walkErrors(err, func(err error) bool {
		return strings.HasSuffix(reflect.TypeOf(err).String(), "errors.errorString") && err.Error() == "invalid connection"
	})
}

// walkErrors calls f for err and what it wraps, until f returns true.
func walkErrors(err error, f func(error) bool) bool {
	if err == nil {
		return false
	}
	if f(err) {
		return true
	}
	switch w := err.(type) { //nolint:errorlint // it walks by itself, as errors.As does
	case interface{ Unwrap() error }:
		return walkErrors(w.Unwrap(), f)
	case interface{ Unwrap() []error }:
		for _, err := range w.Unwrap() {
			if walkErrors(err, f) {
				return true
			}
		}
	}
	return false
}
