package engine

import (
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/internal/claims"
	"github.com/txonce/txonce/internal/usercode"
)

// AnswerWithin limits every statement that the database should answer at once. COMMIT and ROLLBACK have no other limit:
// the end of ctx must not cut them short, because a COMMIT without an answer has an unknown outcome.
const AnswerWithin = 10 * time.Second

// HowToMigrate is the end of each error about a wrong schema.
const HowToMigrate = "apply txonce's migrations: txonce migrate up, migrations.Apply(ctx, db, dialect, schema), or the files of package migrations"

// Database marks the errors of sqlstore that the database caused.
const Database = claims.Owner("sqlstore")

var (
	// ErrSwallowed means that an earlier statement of the transaction failed, so the transaction can only be rolled
	// back.
	ErrSwallowed = errors.New("sqlstore: not committed: a statement of the handler failed, and the handler returned nil; " +
		"return the errors of statements, or roll back to a savepoint from before")

	// ErrTemporary means that a handler has left something on its connection that later handlers of the transaction
	// would use.
	ErrTemporary = fmt.Errorf("sqlstore: %w; drop it before the handler returns, or use a transaction for each handler",
		dedup.ErrTemporary)

	// ErrUnready means that the driver takes no statement: the handler left rows open, or the connection is lost.
	ErrUnready = errors.New("the connection takes no statement")

	// ErrBusy means that another sweeper has the lease.
	ErrBusy = errors.New("sqlstore: another sweeper is at work")

	// ErrNoShards means that the tables exist, but lack rows that the migrations insert.
	ErrNoShards = Database.Errorf("%w: txonce_shards or outbox_seq is empty; %s", dedup.ErrSchema, HowToMigrate)
)

// Walk calls f for err and each error that it wraps, until f returns true. The errors may be the user's: when a method
// of one panics or ends its goroutine, Walk has found nothing.
func Walk(err error, f func(error) bool) (found bool) {
	if err == nil {
		return false
	}
	_ = usercode.Run(func() { found = walk(err, f) })
	return found
}

func walk(err error, f func(error) bool) bool {
	if err == nil {
		return false
	}
	if f(err) {
		return true
	}
	if all, ok := usercode.Wrapped(err); ok {
		return slices.ContainsFunc(all, f)
	}
	switch w := err.(type) { //nolint:errorlint // Walk itself follows wrapped errors, as errors.As does
	case interface{ Unwrap() error }:
		return walk(w.Unwrap(), f)
	case interface{ Unwrap() []error }:
		for _, err := range w.Unwrap() {
			if walk(err, f) {
				return true
			}
		}
	}
	return false
}

// Discard closes a connection instead of returning it to the pool.
func Discard(conn *sql.Conn) { _ = conn.Raw(func(any) error { return driver.ErrBadConn }) }
