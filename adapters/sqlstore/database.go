package sqlstore

import (
	"context"
	"database/sql"
	"time"

	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/internal/claims"
)

// database is what PostgreSQL, SQLite and MySQL differ in.
type database interface {
	encoding
	outboxDatabase

	// locate returns the schema in which statements without one find txonce's tables; empty: in none. It comes before name, and
	// name before anything else.
	locate(ctx context.Context, q queryer) (schema string, err error)
	// name makes the statements for tables in schema.
	name(schema string)
	// statements returns those that differ in their text only.
	statements() *statements

	// enter waits until another transaction may begin. leave must be called once after it.
	enter(ctx context.Context) (leave func(), err error)
	// begin begins a transaction on conn that may write. ctx bounds the waiting, end what the driver does later.
	begin(ctx, end context.Context, conn *sql.Conn, level sql.IsolationLevel) (*sql.Tx, error)
	// commit commits tx, within ctx. A rollback may follow in any case.
	commit(ctx context.Context, tx *sql.Tx) error
	// restore is called once after begin, before the connection of t goes back to its pool. It discards one whose session is not
	// as it was, or where this cannot be known.
	restore(ctx context.Context, t *session)
	// claim inserts those of rows that are not there, and reads after that how far was forgotten.
	claim(ctx context.Context, c *claim, rows []claims.Row) error
	// flush makes duplicates as durable as the commits that they report: the claim wrote nothing for some of its rows.
	flush(ctx context.Context, c *claim) error
	// mark prepares for prove, which fails with ErrTxEnded where t is not in the transaction that mark was called in, and with
	// errSwallowed where a failed statement has broken it. verify is prove, and another one may follow it.
	mark(ctx context.Context, t *session) error
	prove(ctx context.Context, t *session) error
	verify(ctx context.Context, t *session) error
	// stands reports, on a connection without a transaction, that what c has inserted was committed.
	stands(ctx context.Context, q queryer, c *claim) (bool, error)
	// committed is stands within tx, which may have made claims of its own by now. Where it cannot know, it reports true.
	committed(ctx context.Context, tx *sql.Tx, c *claim) (bool, error)
	// writesEnd reports that what a handler wrote after its transaction had ended is rolled back with t, unless the handler
	// sent COMMIT after it.
	writesEnd(ctx context.Context, t *session) bool
	// inProgress reports, on another connection of the pool, that the server has not ended the transaction of c, which has inserted.
	inProgress(ctx context.Context, c *claim) (bool, error)
	// useWindowsWithin registers windows for a claim within tx, a transaction of the caller's. It returns until when
	// those are registered that this transaction itself has registered or found registered.
	useWindowsWithin(ctx context.Context, s *Store, tx *sql.Tx, due []claims.Window) (map[claims.Window]time.Time, error)
	// useWindow registers a window, and returns until when.
	useWindow(ctx context.Context, db queryer, w claims.Window) (time.Time, error)
	// saveResult reports whether the key was there.
	saveResult(ctx context.Context, tx *sql.Tx, k [16]byte, result []byte) (found bool, err error)
	// fits refuses a message of so many bytes, which the database would not take.
	fits(bytes int) error
	// patiently runs f, again and again where another connection is writing.
	patiently(ctx context.Context, f func() error) error

	// registered is called when windows are registered, at start and twice a day: what else may have changed is read again.
	registered(ctx context.Context, db *sql.DB) error

	// check refuses at start what would forget commits, or refuse to write.
	check(ctx context.Context, db *sql.DB) error
	// sweep deletes what has expired in the next part of the table, in tx.
	sweep(ctx context.Context, tx *sql.Tx, by dedup.Sweep) (dedup.Swept, error)

	inFlight(err error) bool   // another transaction holds the key that err's statement asked for
	aborted(err error) bool    // a statement of the transaction failed before this one
	elsewhere(err error) bool  // err cannot come from a transaction that goes on: it is healed, or another database's
	mayEnd(err error) bool     // what err says may have rolled the whole transaction back
	idled(err error) bool      // the server ended a transaction that stood idle for too long
	ambiguous(err error) bool  // see dedup.FaultClassifier
	undefined(err error) bool  // a table is missing
	constraint(err error) bool // a constraint that is checked at COMMIT: the handler's doing
	retryable(err error) bool
	refused(err error) bool // the user, the database's name, a permission, a file: a person has to change it
}

// encoding is how parameters are written.
type encoding interface {
	key(k [16]byte) any
	keys(ks []dedup.Derived) any
	time(t time.Time) any // NULL for the zero time
}

// statements of one shape.
type statements struct {
	Existing, Forgotten, Windows string
	Forget, SaveResult, Lookup   string
	UseWindow                    string
	SchemaVersion, SchemaTables  string

	LockSources, Sources, AddSource string
	Park, Take, Letters             string
}

// queryer is a *sql.DB, *sql.Conn or *sql.Tx.
type queryer interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
}
