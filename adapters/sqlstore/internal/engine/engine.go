// Package engine defines the small interfaces that a Store uses to work with its database. The engines in packages
// postgres, mysql and sqlite implement them. It also holds code that the engines and the Store share: types that
// describe a claim and a transaction, and functions that read and write values.
package engine

import (
	"context"
	"database/sql"
	"time"

	"github.com/txonce/txonce/consumer/ops"
	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/dedup/driver"
	"github.com/txonce/txonce/internal/claims"
	"github.com/txonce/txonce/internal/dialect"
)

// Config has the fields of sqlstore.Config that an engine needs.
type Config struct {
	DB                            *sql.DB
	Schema                        string
	Isolation                     sql.IsolationLevel
	ClaimTimeout, IdleInTxTimeout time.Duration
	Compact                       bool
	AllowAsyncCommit              bool
	KeepSent                      time.Duration
}

// Engine is one kind of database. One value may implement several of the parts.
type Engine struct {
	Tables       Tables
	Transactions Transactions
	Claims       Claims
	Proofs       Proofs
	Errors       Errors
	Values       Values
	KeyProber    KeyProber   // nil: other transactions never hold a key, but they may hold the whole database
	Holders      Holders     // nil: the database does not tell which transaction holds a key
	OwnWindows   WindowsInTx // nil: a second connection of the pool can register windows while a transaction is open

	Outbox Outbox
}

// Tables finds, checks and sweeps the tables.
type Tables interface {
	// Locate returns the schema where the server finds txonce's tables by their unqualified names, or "" if it finds
	// none, and an error if a new session would find them in another schema. It is called before Name, and Name before
	// all other methods.
	Locate(ctx context.Context, q Queryer) (schema string, err error)
	// Name builds the statements for tables in schema.
	Name(schema string)
	// Statements returns the statements that differ between databases in their text only.
	Statements() *Statements
	// Check fails if the database's settings would lose commits or refuse writes. Register calls it.
	Check(ctx context.Context) error
	// CheckSession fails if settings of the session break statements. Check does the same, and relays call it alone.
	CheckSession(ctx context.Context) error
	// CheckNumbers fails if what numbers the outbox's messages is behind the numbers that are in use. Relays call it.
	CheckNumbers(ctx context.Context) error
	// Refresh reads other settings that may have changed. It is called when windows are registered: at start and twice
	// a day.
	Refresh(ctx context.Context) error
	// Sweep deletes expired rows in the next part of the table, in tx. It fails with ErrBusy if another sweeper has the
	// lease. a is nil, or says what to archive.
	Sweep(ctx context.Context, tx *sql.Tx, by dedup.Sweep, a *Archive) (dedup.SweepResult, error)
	// Fits fails if the database cannot take a message of this many bytes.
	Fits(bytes int) error
}

// Transactions begins and ends transactions.
type Transactions interface {
	// Enter waits until another transaction may begin. The caller must call leave once when that transaction has ended.
	Enter(ctx context.Context) (leave func(), err error)
	// Begin begins a transaction on conn that may write. ctx limits the wait; the driver uses end for the rest of the
	// transaction.
	Begin(ctx, end context.Context, conn *sql.Conn, level sql.IsolationLevel) (*sql.Tx, error)
	// ShortenLockWaits keeps the statements of t from waiting long for locks, see driver.WithoutLockWaits.
	ShortenLockWaits(ctx context.Context, t *Transaction) error
	// Commit commits tx before ctx ends. The caller may call Rollback after it in any case.
	Commit(ctx context.Context, tx *sql.Tx) error
	// Restore is called once after Begin, before the connection of t returns to its pool. It closes the connection if
	// the session's settings have changed, or if it cannot check them.
	Restore(ctx context.Context, t *Transaction)
	// RetryBusy runs f, and repeats it while another connection is writing.
	RetryBusy(ctx context.Context, f func() error) error
}

// Transaction is a transaction that the Store began.
type Transaction struct {
	Conn    *sql.Conn
	Tx      *sql.Tx
	Claim   *Claim // nil: no handler gets this transaction
	Proof   string // see Proofs
	Marked  bool   // on PostgreSQL: a savepoint separates the handlers
	Ended   bool   // the server answered COMMIT or ROLLBACK
	Changed bool   // the handler's transaction ended with other settings than it began with
	Spoilt  bool   // the session's settings may have changed, so the connection must be closed

	Temporary bool // on PostgreSQL: the session has, or has had, temporary tables
}

// Claims writes claims, their results and windows, and locks keys.
type Claims interface {
	// Claim inserts the rows that are missing, and then reads up to when keys were forgotten.
	Claim(ctx context.Context, c *Claim, rows []claims.Row) error
	// Flush makes a duplicate's COMMIT as durable as the commit that the duplicate reports. The claim wrote nothing for
	// those rows, so its COMMIT alone would not wait for a standby.
	Flush(ctx context.Context, c *Claim) error
	// UseWindow registers a window and returns until when it is registered.
	UseWindow(ctx context.Context, q Queryer, w claims.Window) (time.Time, error)
	// SaveResult saves a result and reports whether the key exists.
	SaveResult(ctx context.Context, tx *sql.Tx, k [16]byte, result []byte) (found bool, err error)
	// Newer records version if it is the highest of object, and reports whether it is.
	Newer(ctx context.Context, tx *sql.Tx, object string, version int64) (bool, error)
	// LockKeys locks one key against other transactions that lock it, until tx ends. If the lock is not free within
	// wait, Fault sets InFlight for its error.
	LockKeys(ctx context.Context, tx *sql.Tx, l claims.Lock, wait time.Duration) error
}

// WindowsInTx registers windows within the caller's transaction.
type WindowsInTx interface {
	// UseWindowsIn registers the windows in due that are not registered yet. It returns until when each one is
	// registered.
	UseWindowsIn(ctx context.Context, tx *sql.Tx, due []claims.Window) (map[claims.Window]time.Time, error)
}

// KeyProber reports whether other transactions hold keys. run runs a function in a transaction and then rolls it back.
type KeyProber interface {
	HeldKeys(ctx context.Context, run Run, keys []dedup.KeyHash) ([]bool, error)
}

// Holders names the transactions that others wait for.
type Holders interface {
	// Session returns the server's number of the session that tx uses.
	Session(ctx context.Context, tx *sql.Tx) (int64, error)
	// Holder returns the transaction that a session waits for now: the oldest one, if there are several. It fails with
	// sql.ErrNoRows if the session waits for none.
	Holder(ctx context.Context, q Queryer, session int64) (ops.Holder, error)
}

// Proofs checks whether a handler's transaction is still the one that claimed.
type Proofs interface {
	// Stamp prepares for Verify. If t has left its current transaction by then, Verify fails with dedup.ErrTxEnded. If
	// a failed statement has broken the transaction, Verify fails with ErrSwallowed.
	Stamp(ctx context.Context, t *Transaction) error
	Verify(ctx context.Context, t *Transaction) error
	// VerifyAndStamp verifies, and prepares for another verification. On PostgreSQL and SQLite it fails with
	// ErrTemporary if a handler has left a temporary table, view or trigger.
	VerifyAndStamp(ctx context.Context, t *Transaction) error
	// Committed reports whether the rows that c inserted are committed. q has no open transaction.
	Committed(ctx context.Context, q Queryer, c *Claim) (bool, error)
	// CommittedBefore is Committed inside tx, which may have made claims since. It reports true if it cannot know.
	CommittedBefore(ctx context.Context, tx *sql.Tx, c *Claim) (bool, error)
	// InProgress reports whether the transaction of c is still open on the server. It asks on another connection of the
	// pool. c has inserted rows.
	InProgress(ctx context.Context, c *Claim) (bool, error)
	// LateWritesRollBack reports whether rolling back t also discards what the handler wrote after its transaction had
	// ended. It does not consider a COMMIT that the handler sent after those writes.
	LateWritesRollBack(ctx context.Context, t *Transaction) bool
}

// Errors classifies the errors of a driver.
type Errors interface{ Fault(err error) Fault }

// Fault classifies the error of a statement. The zero Fault means that the error is unknown.
type Fault struct {
	Class    driver.FaultClass
	InFlight bool // another transaction holds the key that the statement needs
	Aborted  bool // an earlier statement of the transaction failed
	// the error would have ended this transaction: it comes from another database, or a rollback to a savepoint undid
	// it
	Elsewhere    bool
	MayEnd       bool // the error may have rolled back the whole transaction
	Idle         bool // the server says that it ended the transaction because it was idle for too long
	Undefined    bool // a table is missing
	NotCommitted bool // as the answer to COMMIT, the error says that nothing was committed
	Collided     bool // a deadlock, or a conflict above READ COMMITTED: the server rolled the transaction back
	Busy         bool // another connection kept writing until the wait ended
	Retryable    bool // see dedup.Store
	Ambiguous    bool // see driver.FaultClassifier
	Full         bool // the disk is full, or a limit of the session says so
	Refused      bool // a wrong user, database name, permission or file: an operator must change it
	ReadOnly     bool // the session accepts no writes: after a failover it may be one to the former primary
}

// Values converts parameters to the database's types.
type Values interface {
	Key(k [16]byte) any
	Keys(ks []dedup.KeyHash) any
	Time(t time.Time) any // NULL for the zero time
}

// Statements have the same parameters and results on every database.
type Statements struct {
	Existing, Forgotten, Windows string
	Forget, SaveResult, Lookup   string
	UseWindow                    string
	SchemaVersion, SchemaTables  string

	LockSources, Sources, AddSource   string
	Park, TakeDeadLetter, DeadLetters string

	Operator dialect.Operator
}

// Queryer is a *sql.DB, *sql.Conn or *sql.Tx.
type Queryer interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
}

// Run runs f in a transaction of its own.
type Run func(ctx context.Context, f func(ctx context.Context, tx *sql.Tx) error) error
