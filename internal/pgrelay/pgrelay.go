// Package pgrelay has what a relay and an operator do with an outbox in PostgreSQL: Session is a relay's
// driver.Session, Operations are the operator's. adapters/pgxstore and adapters/sqlstore give it connections by
// Database and Conns: pgxstore sends the statements of a transaction in one round trip, sqlstore one after the other.
//
// A session decides in memory (holding, scans, watermark.Marks) and acts by statements of dialect.PostgresOutbox. A
// transaction that a crash cuts off is rolled back, and its session's hold expires: then other sessions take the
// shards. Repair needs several transactions; after a crash between two of them, the Maintain of a session does the
// rest.
package pgrelay

import (
	"context"

	"github.com/txonce/txonce/internal/shares"
)

// Step is one statement. Arguments are of types that drivers know, or slices of them, which are arrays.
type Step struct {
	SQL     string
	Args    []any                      // a slice is an array, except []byte
	Row     func(row shares.Row) error // gets each row; nil: the statement returns none
	Changed func(rows int64)           // gets the number of changed rows; nil: it does not matter
	Sending func()                     // is called before the statement is sent; nil: nothing is
}

// Run sends steps. operation names them in errors. Run may roll back and send them again.
type Run func(ctx context.Context, operation string, steps ...Step) error

// Database runs statements. It classifies their errors, and returns driver.ErrLeaseLost as it is.
type Database interface {
	// Transact sends steps in one transaction at READ COMMITTED, with the relay's settings: those of
	// dialect.PostgresOutbox.Settings.
	Transact(ctx context.Context, operation string, steps ...Step) error
	// Read sends one statement that only reads. The relay's settings may be missing.
	Read(ctx context.Context, operation string, step Step) error
}

// Conns are a session's way to the database.
type Conns interface {
	Database
	// Hold is Transact for steps that take, keep or give back shards. It does not wait until other calls of Transact
	// have ended.
	Hold(ctx context.Context, operation string, steps ...Step) error
	// Together calls f, which only reads, with a Run that has the relay's settings. A database that takes one statement
	// per round trip runs all of f in one transaction, so that it begins and ends once. f may be called again.
	Together(ctx context.Context, operation string, f func(ctx context.Context, run Run) error) error
}
