package pgxstore

import (
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Config configures a Store.
type Config struct {
	// Pool is the application's own pool. Handlers write to its database. Required; the Store does not close it. When
	// it has to find out what became of a transaction, the Store opens one connection more than the pool's.
	//
	// A claim uses no session whose search_path, role or synchronous_commit is not the one that it began with, or that
	// has temporary tables. If the pool has an AfterConnect, the session must be as the first claim found it. If it has
	// PrepareConn or BeforeAcquire, that hook decides about search_path and role, and must set them each time: the
	// Store then compares only synchronous_commit and the number of temporary tables. Behind a pooler, hooks must
	// change nothing in a session: see docs/poolers.md.
	Pool *pgxpool.Pool

	// Direct configures the connection for LISTEN when Pool connects through a pooler in transaction mode, which does
	// not support LISTEN. Without it, relays in other processes find messages by polling, and the Store logs one
	// warning.
	//
	// Defaults to connecting as Pool does.
	Direct *pgx.ConnConfig

	// Schema is the schema that holds the tables of package migrations. Set it when the search_path of a session
	// depends on a tenant: the Store uses one schema for all.
	//
	// Defaults to the schema where the search_path of a new session finds the table txonce_schema. If the first session
	// that the Store uses has another search_path, and finds the table in another schema, the Store uses neither, and
	// its error asks for Schema.
	Schema string

	// Isolation is the isolation level of transactions that InTx begins. Above READ COMMITTED a conflict fails with a
	// Retryable error, and each claim costs one more round trip.
	//
	// Defaults to READ COMMITTED, whatever default_transaction_isolation says.
	Isolation pgx.TxIsoLevel

	// ClaimTimeout is how long a claim waits for transactions that hold its keys, and for the database itself. When it
	// expires, the claim's connection is closed. At least 1 ms.
	//
	// Defaults to 5 s.
	ClaimTimeout time.Duration

	// IdleInTxTimeout is how long a transaction of InTx may be idle between two statements before the server ends it.
	// This frees the claims of a process that is frozen or disconnected. A handler that calls another system between
	// two statements must finish sooner. If the session sets idle_in_transaction_session_timeout itself, that value is
	// used instead. At least 1 ms; negative: no limit.
	//
	// The limit does not apply while the server waits for the client within a statement: for the rows of a COPY, or
	// until the client reads a large result. A process that freezes there keeps its claims until its TCP connection
	// ends, or until pg_terminate_backend ends the session. Set tcp_user_timeout on the server if a machine may
	// disappear.
	//
	// Defaults to 5 minutes.
	IdleInTxTimeout time.Duration

	// Compact leaves the columns consumer, tenant and id NULL. This saves about 40 bytes per key, but the rows no
	// longer show which message they belong to.
	//
	// Defaults to false.
	Compact bool

	// AllowAsyncCommit accepts a database that may lose a commit in a crash (synchronous_commit off or local, fsync
	// off). A message whose effect was lost this way is not delivered again. Kafka's Subscriber does not read it again
	// either: after the crash of one of its processes PostgreSQL is still the same server, so nothing notices the loss.
	//
	// Without it, COMMIT uses the synchronous_commit that the claim found, even after a handler's SET LOCAL. A change
	// by a function of the database is not detected.
	//
	// Defaults to false: Register fails with ErrNotDurable.
	AllowAsyncCommit bool

	// Logger gets one line for each event that an operator should know about.
	//
	// Defaults to slog.Default().
	Logger *slog.Logger

	// Outbox configures how outbox messages are stored.
	Outbox OutboxConfig
}
