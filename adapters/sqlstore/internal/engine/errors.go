package engine

import (
	"database/sql"
	"database/sql/driver"
	"errors"
	"time"

	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/internal/claims"
)

// AnswerWithin bounds every statement that should be answered at once. COMMIT and ROLLBACK have no other bound, because they must
// not be cut short by the end of ctx: a COMMIT without an answer has an unknown outcome.
const AnswerWithin = 10 * time.Second

// HowToMigrate ends the errors about a schema that does not fit.
const HowToMigrate = "apply txonce's migrations: migrations.Apply(ctx, db, dialect, schema), or the files of package migrations"

// Database marks the errors of sqlstore that the database caused.
const Database = claims.Owner("sqlstore")

var (
	// ErrSwallowed says that an earlier statement of the transaction failed, so that it can only be rolled back.
	ErrSwallowed = errors.New("sqlstore: not committed: a statement of the handler failed, and the handler returned nil; " +
		"return the errors of statements, or roll back to a savepoint from before")

	// ErrUnready says that the driver takes no statement: the handler left rows open, or the connection is lost.
	ErrUnready = errors.New("the connection takes no statement")

	// ErrBusy says that another sweeper has the lease.
	ErrBusy = errors.New("sqlstore: another sweeper is at work")

	// ErrNoShards is for tables that are there, but not as the migrations leave them.
	ErrNoShards = Database.Errorf("%w: txonce_shards or outbox_seq is empty; %s", dedup.ErrSchema, HowToMigrate)
)

// Walk calls f for err and what it wraps, until f returns true.
func Walk(err error, f func(error) bool) bool {
	if err == nil {
		return false
	}
	if f(err) {
		return true
	}
	switch w := err.(type) { //nolint:errorlint // it walks by itself, as errors.As does
	case interface{ Unwrap() error }:
		return Walk(w.Unwrap(), f)
	case interface{ Unwrap() []error }:
		for _, err := range w.Unwrap() {
			if Walk(err, f) {
				return true
			}
		}
	}
	return false
}

// Discard closes a connection instead of giving it back.
func Discard(conn *sql.Conn) { _ = conn.Raw(func(any) error { return driver.ErrBadConn }) }
