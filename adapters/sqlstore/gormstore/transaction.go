package gormstore

import (
	"cmp"
	"database/sql"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"sync"

	"gorm.io/gorm"
)

// transaction is what gorm sends a handler's statements to. All sessions that a handler derives from its *gorm.DB share
// it.
type transaction struct {
	*sql.Tx

	mu         sync.Mutex
	failure    error            // of the first statement that failed
	savepoints map[string]error // the failure at the time when each savepoint was set
}

// callbackName is the name of the callback that remembers failures.
const callbackName = "txonce:first_error"

// noteFailures makes note run after each statement of db. gorm warns when a name is registered twice.
func noteFailures(db *gorm.DB) error {
	on := db.Callback()
	if on.Raw().Get(callbackName) != nil {
		return nil
	}
	return errors.Join(
		on.Create().After("*").Register(callbackName, note), on.Query().After("*").Register(callbackName, note),
		on.Update().After("*").Register(callbackName, note), on.Delete().After("*").Register(callbackName, note),
		on.Row().After("*").Register(callbackName, note), on.Raw().After("*").Register(callbackName, note))
}

var (
	setsSavepoint = regexp.MustCompile(`(?i)^\s*SAVEPOINT\s+(\S+)`)
	undoesTo      = regexp.MustCompile(`(?i)^\s*ROLLBACK\s+(?:(?:WORK|TRANSACTION)\s+)?TO\s+(?:SAVEPOINT\s+)?(\S+)`)
)

// note remembers the first failure of a transaction. Rolling back to a savepoint forgets the failures that came after
// it.
func note(db *gorm.DB) {
	tx, ok := poolOf(db).(*transaction)
	if !ok || db.DryRun {
		return
	}
	tx.mu.Lock()
	defer tx.mu.Unlock()
	query := db.Statement.SQL.String()
	switch {
	case db.Error != nil && !errors.Is(db.Error, gorm.ErrRecordNotFound):
		tx.failure = cmp.Or(tx.failure, db.Error)
	case undoesTo.MatchString(query):
		if before, known := tx.savepoints[savepointName(undoesTo, query)]; known { // not one of the Store's own
			tx.failure = before
		}
	case setsSavepoint.MatchString(query):
		tx.savepoints[savepointName(setsSavepoint, query)] = tx.failure
	}
}

func savepointName(in *regexp.Regexp, query string) string {
	return strings.ToLower(strings.Trim(in.FindStringSubmatch(query)[1], "\"`;"))
}

// failureIn returns an error if a statement of tx failed and was not undone.
func failureIn(db *gorm.DB) error {
	tx, ok := poolOf(db).(*transaction)
	if !ok {
		return nil
	}
	tx.mu.Lock()
	defer tx.mu.Unlock()
	if tx.failure == nil {
		return nil
	}
	return fmt.Errorf("gormstore: a statement failed, and the handler returned nil: return the Error of each statement, or run one that may fail in tx.Transaction: %w", tx.failure)
}
