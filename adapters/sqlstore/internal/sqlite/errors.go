package sqlite

import (
	"errors"
	"reflect"
	"strings"

	"github.com/txonce/txonce/adapters/sqlstore/internal/engine"
	"github.com/txonce/txonce/internal/faults"
)

// Primary result codes of SQLite.
const (
	codeError     = 1
	codeBusy      = 5
	codeNoMem     = 7
	codeInterrupt = 9
	codeIOErr     = 10
	codeFull      = 13
	codeAuth      = 23
)

// Fault implements engine.Errors. BUSY means contention for the file, not for a key. Most failed statements undo only
// themselves; some codes may roll back the whole transaction (see https://sqlite.org/lang_transaction.html). Errors of
// another file look the same as errors of this one.
func (d *DB) Fault(err error) engine.Fault {
	code, known := resultCode(err)
	if !known {
		return engine.Fault{}
	}
	class := faults.OfSQLite(code, err.Error())
	primary := code & 0xff
	f := engine.Fault{
		Class:     class,
		Undefined: undefined(err), Busy: primary == codeBusy,
		// without a write-ahead log, COMMIT fails while other connections read
		NotCommitted: faults.SQLiteConstraint(code) || primary == codeBusy,
		Retryable:    faults.SQLite.Retryable(class),
		Ambiguous:    faults.SQLite.Ambiguous(class),
		Full:         primary == codeFull, // also after PRAGMA max_page_count
		Refused:      faults.SQLite.Refused(class),
	}
	switch primary {
	case codeBusy, codeNoMem, codeInterrupt, codeIOErr, codeFull:
		f.MayEnd = true
	}
	return f
}

// undefined reports that a table or column is missing.
func undefined(err error) bool {
	code, known := resultCode(err)
	return known && code&0xff == codeError && (strings.Contains(err.Error(), "no such table") ||
		strings.Contains(err.Error(), "no such column"))
}

// resultCode returns SQLite's result code in err. It imports no driver: it calls the method Code, which errors of
// modernc.org/sqlite have. Errors of other packages may have such a method too, so the type's name must contain
// "sqlite".
func resultCode(err error) (code int, known bool) {
	var e interface {
		error
		Code() int
	}
	if !errors.As(err, &e) || !strings.Contains(reflect.TypeOf(e).String(), "sqlite") {
		return 0, false
	}
	return e.Code(), true
}
