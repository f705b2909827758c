// Package engine says what a Store asks of its kind of database, in small interfaces, and holds what the engines (packages postgres,
// mysql and sqlite) and the Store share: how a claim and a transaction are described, and how values are read and written.
package engine

import (
	"context"
	"database/sql"
	"time"

	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/internal/claims"
)

// Config is what an engine needs of sqlstore.Config.
type Config struct {
	DB                            *sql.DB
	Schema                        string
	Isolation                     sql.IsolationLevel
	ClaimTimeout, IdleInTxTimeout time.Duration
	Compact                       bool
	AllowAsyncCommit              bool
	KeepSent                      time.Duration
}

// Engine is one kind of database. One value may be all of its parts.
type Engine struct {
	Tables       Tables
	Transactions Transactions
	Claims       Claims
	Proofs       Proofs
	Errors       Errors
	Values       Values
	KeyProber    KeyProber   // nil: no key is ever held by another transaction
	OwnWindows   WindowsInTx // nil: a second connection of the pool can register windows while a transaction is open

	Outbox Outbox
}

// Tables finds and checks the tables, and sweeps them.
type Tables interface {
	// Locate returns the schema in which statements without one find txonce's tables; empty: in none. It comes before Name, and
	// Name before anything else.
	Locate(ctx context.Context, q Queryer) (schema string, err error)
	// Name makes the statements for tables in schema.
	Name(schema string)
	// Statements returns those that differ in their text only.
	Statements() *Statements
	// Check refuses at start what would forget commits, or refuse to write.
	Check(ctx context.Context) error
	// Refresh is called when windows are registered, at start and twice a day: it reads again what else may have changed.
	Refresh(ctx context.Context) error
	// Sweep deletes what has expired in the next part of the table, in tx. It fails with ErrBusy where another sweeper is at work.
	Sweep(ctx context.Context, tx *sql.Tx, by dedup.Sweep) (dedup.SweepResult, error)
	// Fits refuses a message of so many bytes, which the database would not take.
	Fits(bytes int) error
}

// Transactions begins and ends transactions.
type Transactions interface {
	// Enter waits until another transaction may begin. leave must be called once after it.
	Enter(ctx context.Context) (leave func(), err error)
	// Begin begins a transaction on conn that may write. ctx bounds the waiting, end what the driver does later.
	Begin(ctx, end context.Context, conn *sql.Conn, level sql.IsolationLevel) (*sql.Tx, error)
	// Commit commits tx, within ctx. A rollback may follow in any case.
	Commit(ctx context.Context, tx *sql.Tx) error
	// Restore is called once after Begin, before the connection of t goes back to its pool. It discards a connection whose session is
	// not as it was before, or where this cannot be known.
	Restore(ctx context.Context, t *Transaction)
	// RetryBusy runs f, again and again where another connection is writing.
	RetryBusy(ctx context.Context, f func() error) error
}

// Transaction is a transaction that the Store began.
type Transaction struct {
	Conn    *sql.Conn
	Tx      *sql.Tx
	Claim   *Claim // nil: the transaction is not for a handler
	Proof   string // see Proofs
	Ended   bool   // the server answered COMMIT or ROLLBACK
	Changed bool   // the handler's transaction ended with other settings than it began with
	Spoilt  bool   // somebody may have changed the session's settings: the connection is closed
}

// Claims claims keys.
type Claims interface {
	// Claim inserts those of rows that are not there, and reads after that how far was forgotten.
	Claim(ctx context.Context, c *Claim, rows []claims.Row) error
	// Flush makes duplicates as durable as the commits that they report: the claim wrote nothing for some of its rows.
	Flush(ctx context.Context, c *Claim) error
	// UseWindow registers a window, and returns until when.
	UseWindow(ctx context.Context, q Queryer, w claims.Window) (time.Time, error)
	// SaveResult reports whether the key was there.
	SaveResult(ctx context.Context, tx *sql.Tx, k [16]byte, result []byte) (found bool, err error)
	// Lock excludes other transactions that lock the same key, until tx ends. It waits no longer than wait; then its error is a
	// Fault.InFlight.
	LockKeys(ctx context.Context, tx *sql.Tx, l claims.Lock, wait time.Duration) error
}

// WindowsInTx registers windows within a transaction of the caller's.
type WindowsInTx interface {
	// UseWindowsIn returns until when those are registered that the transaction has registered, or found registered.
	UseWindowsIn(ctx context.Context, tx *sql.Tx, due []claims.Window) (map[claims.Window]time.Time, error)
}

// KeyProber tells whether other transactions hold keys. run runs a function in a transaction that is rolled back after it.
type KeyProber interface {
	HeldKeys(ctx context.Context, run Run, keys []dedup.KeyHash) ([]bool, error)
}

// Proofs tells whether a handler's transaction is still the one that claimed.
type Proofs interface {
	// Stamp prepares for Verify, which fails with dedup.ErrTxEnded where t is not in the transaction that Stamp was called in, and
	// with ErrSwallowed where a failed statement has broken it.
	Stamp(ctx context.Context, t *Transaction) error
	Verify(ctx context.Context, t *Transaction) error
	// VerifyAndStamp is Verify, and another one may follow it.
	VerifyAndStamp(ctx context.Context, t *Transaction) error
	// Committed reports, on a connection without a transaction, that what c has inserted was committed.
	Committed(ctx context.Context, q Queryer, c *Claim) (bool, error)
	// CommittedBefore is Committed within tx, which may have made claims of its own by now. Where it cannot know, it reports true.
	CommittedBefore(ctx context.Context, tx *sql.Tx, c *Claim) (bool, error)
	// InProgress reports, on another connection of the pool, that the server has not ended the transaction of c, which has inserted.
	InProgress(ctx context.Context, c *Claim) (bool, error)
	// LateWritesRollBack reports that what a handler wrote after its transaction had ended is rolled back with t, unless the handler
	// sent COMMIT after it.
	LateWritesRollBack(ctx context.Context, t *Transaction) bool
}

// Errors tells what the errors of a driver mean.
type Errors interface{ Fault(err error) Fault }

// Fault is what the error of a statement means. The zero Fault says nothing.
type Fault struct {
	InFlight   bool // another transaction holds the key that the statement asked for
	Aborted    bool // a statement of the transaction failed before this one
	Elsewhere  bool // it cannot come from a transaction that goes on: that was healed, or it is of another database
	MayEnd     bool // it may have rolled the whole transaction back
	Idle       bool // the server ended a transaction that was idle for too long
	Undefined  bool // a table is missing
	Constraint bool // a constraint that is checked at COMMIT: the handler's doing
	Collided   bool // the server rolled the transaction back because it and another one waited for each other
	Busy       bool // the statement waited in vain for another connection that writes
	Retryable  bool // see dedup.Store
	Ambiguous  bool // see dedup.FaultClassifier
	Refused    bool // the user, the database's name, a permission, a file: a person has to change it
}

// Values is how parameters are written.
type Values interface {
	Key(k [16]byte) any
	Keys(ks []dedup.KeyHash) any
	Time(t time.Time) any // NULL for the zero time
}

// Statements of one shape.
type Statements struct {
	Existing, Forgotten, Windows string
	Forget, SaveResult, Lookup   string
	UseWindow                    string
	SchemaVersion, SchemaTables  string

	LockSources, Sources, AddSource   string
	Park, TakeDeadLetter, DeadLetters string
}

// Queryer is a *sql.DB, *sql.Conn or *sql.Tx.
type Queryer interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
}

// Run runs a function in a transaction of its own.
type Run func(ctx context.Context, f func(ctx context.Context, tx *sql.Tx) error) error
