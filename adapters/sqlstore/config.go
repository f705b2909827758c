package sqlstore

import (
	"database/sql"
	"time"
)

// Dialect names a kind of database.
type Dialect string

// The databases that a Store supports.
const (
	SQLite   Dialect = "sqlite"
	Postgres Dialect = "postgres"
	MySQL    Dialect = "mysql" // also MariaDB
)

// Config configures a Store.
type Config struct {
	// DB is the application's own pool. Handlers write to its database. Required. The Store does not close it.
	//
	// A sql.DB keeps two idle connections unless SetMaxIdleConns has been called, and closes others after each use. Set
	// it to the number of messages that the process handles at once, because a new connection costs a server more than
	// a message does.
	DB *sql.DB

	// Dialect is SQLite, Postgres or MySQL. Required.
	Dialect Dialect

	// Schema contains the tables of package migrations. On MySQL it is the name of a database on the same server.
	// SQLite has no schemas.
	//
	// Defaults to the first schema of search_path that has the tables, and on MySQL to the DSN's database. The Store
	// looks it up once, at its first use. If a new session's search_path would find the tables in another schema, for
	// example because a hook of the driver sets search_path, the Store uses neither, and its error asks for Schema.
	// Later changes, such as SET LOCAL search_path in a transaction that enqueues, do not affect the Store's
	// statements.
	Schema string

	// Isolation is the isolation level of transactions that InTx begins. Above READ COMMITTED a conflict fails with a
	// Retryable error, and a message older than an hour briefly needs a second connection. SQLite is always
	// serializable.
	//
	// Defaults to READ COMMITTED, whatever the database's own default is.
	Isolation sql.IsolationLevel

	// ClaimTimeout limits how long a claim waits for a transaction that holds its key, and on SQLite for any writing
	// transaction. At least 1 ms. MySQL, but not MariaDB, rounds it up to seconds.
	//
	// Defaults to 5 s.
	ClaimTimeout time.Duration

	// IdleInTxTimeout limits how long a transaction of InTx may be idle between two statements. After that the server
	// ends the transaction, which frees the claims of a frozen or disconnected process. A handler that waits for
	// another service must wait for less. SQLite has no such limit.
	//
	// If the session has an idle_in_transaction_session_timeout, that one applies. On MySQL the limit is wait_timeout
	// in seconds, and the shorter one applies. At least 1 ms; negative means no limit.
	//
	// Defaults to 5 minutes.
	IdleInTxTimeout time.Duration

	// Compact leaves the columns consumer, tenant and id NULL. This saves about 40 bytes per key, but the table no
	// longer shows which messages its rows belong to.
	//
	// Defaults to false.
	Compact bool

	// AllowAsyncCommit accepts a database that may lose a commit in a crash. A message whose effects were lost is not
	// delivered again, and Kafka's Subscriber may not notice that it must be read again. Such settings are: on PostgreSQL synchronous_commit off or local, and fsync off; on SQLite
	// synchronous below FULL, or below EXTRA with journal_mode DELETE, and an in-memory database; on MySQL
	// innodb_flush_log_at_trx_commit or sync_binlog other than 1.
	//
	// Defaults to false: Register fails with dedup.ErrNotDurable.
	AllowAsyncCommit bool

	// Outbox configures the outbox.
	Outbox OutboxConfig
}
