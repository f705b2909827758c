// Package sqlstore is a store of txonce for database/sql. The claim of a message is committed in the same transaction
// as the handler's writes.
//
// A [Store] implements dedup.Store, driver.ParkingLot, outbox.Writer and driver.Queue with *sql.Tx as the handler's
// transaction. It works on PostgreSQL, SQLite, MySQL 8.0.19 and MariaDB 10.6 or later. With pgx as the driver, use
// adapters/pgxstore: it needs fewer round trips per claim and guards the handler's transaction better.
//
// # How to use it
//
// Apply the migrations of package migrations. Open a *sql.DB with any driver: pgx's stdlib, lib/pq, modernc.org/sqlite
// or go-sql-driver/mysql (this package imports none). Pass it to [New], and pass the Store to a consumer. Handlers
// write through the *sql.Tx that they get, return nil to commit, and return an error to roll back. Handlers that
// publish messages call [Store.Enqueue] in the same transaction, and a relay publishes the messages after the commit.
// Run a dedup.Sweeper with the Store: it deletes expired keys.
//
// # How it works
//
// InTx begins a transaction and inserts a row for each message's key: the claim. If the row exists, the message is a
// duplicate. Otherwise the handler runs, and the claim commits together with the handler's writes. A second delivery of
// the same message waits for the first one's transaction, for up to Config.ClaimTimeout. Register checks at start that
// the tables fit and that the database does not lose commits.
//
// # What a crash does
//
// When the process dies before COMMIT, the database rolls back the claim and the handler's writes together, and the
// broker delivers the message again. When it dies after COMMIT, the next delivery is a duplicate. When the answer to
// COMMIT is lost, the next delivery finds out whether the claim was committed.
//
// When the process freezes, the server ends its transaction after Config.IdleInTxTimeout, and another process can
// handle the message. SQLite has no such limit: a process that freezes in a transaction blocks all writers until it
// ends.
//
// # What a handler must not do
//
// A handler must not end its transaction. The Store cannot wrap a *sql.Tx, so it cannot prevent this, but it detects
// it. Before COMMIT it checks that the transaction is still the one that claimed. If not, InTx fails with
// dedup.ErrTxEnded. What was rolled back by then is lost. What the handler committed stays committed, together with the
// claim. What it wrote later was committed statement by statement and stays too: after a COMMIT the claim stays as
// well, after a ROLLBACK it is gone.
//
// When a handler commits and then returns an error, InTx returns ErrTxEnded, which wraps the handler's error. To detect
// this, the Store asks the database after a failure whether the claim was committed. If the connection is lost or takes
// no more statements, the Store asks on another connection of the pool. It does so for up to 2 s, and for up to 10 s if
// the database does not answer. Without an answer InTx returns the first error. If the handler had committed the claim,
// the next delivery is then a duplicate.
//
// In a batch, VerifyTx makes the same check between two handlers, so that no handler runs after one that has ended the
// transaction. It costs one round trip per message on PostgreSQL and MariaDB, two on MySQL, and none on SQLite. If
// these round trips take longer than the handlers themselves, handle the whole batch with HandleBatch.
//
// On PostgreSQL a failed statement breaks the transaction. If a handler ignores such an error and returns nil, InTx
// fails, and its error names the cause. Handlers must close their rows before they return. Open rows are the handler's
// error, even if the driver reports a lost connection. On SQLite a canceled write statement, or a full disk, may roll
// back the whole transaction. The check before COMMIT detects that too.
//
// # What a handler may leave behind
//
// Each statement of the Store names the schema of its tables, which the Store looks up once; see Config.Schema. If a
// handler changes its session's settings with SET or USE, the Store closes the connection after the transaction, so
// that no later handler gets it. The Store checks these settings:
//
//   - PostgreSQL: temporary tables, search_path, role, synchronous_commit, session_replication_role, timeouts, time
//     zone, text formats and default_transaction_*
//   - MySQL: the database, role, sql_mode, checks, sql_log_bin, system_versioning_asof, character sets, time zone,
//     limits, and a timestamp that differs from the server's time by 5 s or more, unless the server runs with
//     sysdate-is-now
//   - SQLite: temporary tables, views and triggers, query_only, locking_mode, ignore_check_constraints and
//     recursive_triggers. A connection is also closed after an error that the disk is full, which max_page_count may
//     cause. An in-memory database would end with its connection, which therefore stays open
//
// On PostgreSQL and SQLite, VerifyTx also fails if a handler has left a temporary table, view or trigger, because it
// may take what the next handler of the transaction writes. A consumer then handles that message in a transaction of
// its own. That includes tables with ON COMMIT DROP: drop them in the handler, so that its messages share transactions.
//
// SET LOCAL keeps the connection and costs at most two round trips. If a handler weakens synchronous_commit for its own
// transaction, the Store resets it before COMMIT to the value at the claim.
//
// The Store does not detect session-level advisory locks, LISTEN, temporary tables on MySQL, user variables,
// GET_LOCK, and other pragmas of SQLite: do not use them in handlers. Nor does it detect what other code has left in a
// session before a claim uses it: settings, and temporary tables of the application, which take what handlers write to
// a table of that name. Behind PgBouncer the changed session belongs to a server connection, which stays open when the
// client's connection is closed.
//
// # SQLite
//
// Only one transaction can write at a time. Within a process the Store's transactions queue without holding a
// connection. Processes retry until Config.ClaimTimeout, and then fail with a Retryable error. More concurrency is
// therefore no faster, but batches are.
//
// Open the database with journal_mode WAL, so that readers do not block the writer. Leave synchronous at FULL: with
// NORMAL a power loss may undo a commit, and Register refuses it. Without WAL, COMMIT waits for readers, for up to
// Config.ClaimTimeout and at most 10 s, and blocks new readers meanwhile. With journal_mode DELETE, SQLite's default,
// set synchronous to EXTRA: with FULL a power loss may undo the deletion of the journal, which is the commit. TRUNCATE
// and PERSIST need only FULL.
//
// Keep the tables of handlers in the same file as the Store's. SQLite commits a transaction in several files together
// only if each has journal_mode DELETE, TRUNCATE or PERSIST, and synchronous is not OFF. Otherwise it commits the
// claims first, and the effects in an attached file are lost if that file's disk is full or the process dies. So
// Register, claims, VerifyTx and InTx after the handler fail with dedup.ErrNotDurable if such a file is attached, also
// if no handler writes to it. Attached databases in memory are not refused: a crash loses what they have.
//
// Stop all workers before you delete, move or replace the file, as when you restore a backup. In WAL mode SQLite goes
// on writing to the file that it has open, and reports success: messages are acknowledged whose claims and effects are
// gone. The Store does not notice.
//
// InTx begins every transaction as an IMMEDIATE one, whatever the driver's settings. If you call Claim in your own
// transaction, claim before you read: SQLite refuses to write after a read if another connection has written since, and
// waiting does not help.
//
// # PostgreSQL
//
// A claim waits for a transaction that holds its key for at most Config.ClaimTimeout. The handler's own statements keep
// the session's lock_timeout. Behind PgBouncer in transaction mode, turn off the driver's prepared statements, for
// example with pgx's default_query_exec_mode=exec. Claim in your own transaction may briefly need a second connection
// of the pool: at the first claim under a window, and then twice a day.
//
// When a COMMIT that waits for a synchronous standby is canceled, PostgreSQL commits on the primary alone and answers
// with a warning. database/sql does not pass the warning on, so InTx returns nil, and a failover to the standby may
// lose the commit. Package adapters/pgxstore reads the warning and reports the commit's outcome as unknown.
//
// # MySQL and MariaDB
//
// Dialect MySQL serves both; the Store asks the server which one it is. The Store is tested on MariaDB 10.11 and on
// MySQL 9.7.4. MySQL 8 was not tried.
//
// The DSN's parseTime, loc, clientFoundRows, interpolateParams and multiStatements do not matter, and neither does the
// session's time_zone: times are stored as microseconds, and a claim recognizes a new key by a random token in its row,
// not by a row count.
//
// Register fails, and names the setting, if a setting could lose or alter data: a key column with a case-insensitive
// collation, tables that are not InnoDB, a sql_mode that is not strict, a charset other than utf8mb4, autocommit=0 in
// the DSN, a read-only server, innodb_flush_log_at_trx_commit other than 1, or, with a binary log, sync_binlog other
// than 1.
//
// InTx turns autocommit off and sets a savepoint after the claim. A deadlock rolls back the whole transaction. If a
// handler ignores that error (1213), its later statements run outside of the transaction. The savepoint is gone then,
// so InTx rolls these statements back and fails with dedup.ErrTxEnded. This also detects ROLLBACK and COMMIT sent as
// text, and DDL, which commits: earlier writes stay, with the claim. Any other failed statement undoes only itself,
// including a lock wait that timed out (1205, unless innodb_rollback_on_timeout is on). If a handler ignores such an
// error, the rest of the transaction commits without that statement. Claim in your own transaction has none of these
// guards: roll back after every error.
//
// The tables that handlers write must be InnoDB too. What a handler writes to a table without transactions, such as
// MyISAM, stays when its batch is rolled back, because another message failed, and is written again.
//
// A claim waits for at most Config.ClaimTimeout, rounded up to seconds on MySQL. The handler's own statements keep the
// session's innodb_lock_wait_timeout. The isolation level is READ COMMITTED, whatever the server's default. At higher
// levels gap locks make transactions with neighboring keys wait for each other, and deadlocks, which are Retryable, are
// common.
//
// A COMMIT or claim whose connection is lost keeps its locks until the server notices. Config.IdleInTxTimeout sets
// wait_timeout. With semi-synchronous replication in mode AFTER_COMMIT, other sessions see a commit before a replica
// has it. A duplicate then rewrites its row, so that its own COMMIT waits for the replica.
//
// # The outbox
//
// Enqueue writes messages at once, because database/sql has no hook for the end of a *sql.Tx or for ROLLBACK TO
// SAVEPOINT. Messages are published in the order of their numbers. This is the order of the commits if transactions
// lock each other out before they call Enqueue. So call Enqueue last, after locking the row that the message is about,
// or call [Store.LockOrderingKey] first.
//
// On SQLite only one transaction writes at a time, so messages are always in the order of the commits. A relay takes
// turns with the handlers: polling only reads, and one short transaction settles each batch. All processes that use a
// file run on one machine, and its clock decides when a hold expires. Relays of other processes find messages by
// polling.
//
// On PostgreSQL relays of this package and of adapters/pgxstore can share an outbox. NOTIFY wakes relays of
// adapters/pgxstore; the Store sends it after the commit on a separate connection.
//
// On MySQL and MariaDB relays of other processes poll, because there is no NOTIFY. LockOrderingKey locks one of 1,024
// rows, so two keys sometimes share a lock. A transaction that locks several keys may deadlock with another one, which
// is Retryable. The wait is limited by the session's innodb_lock_wait_timeout. One statement inserts up to 500 messages
// or 1 MB. With interpolateParams=true in the DSN a statement takes one round trip instead of two. A message larger
// than the server's max_allowed_packet is an outbox.ErrBadMessage. The relay's transactions are READ COMMITTED, take no
// gap locks, and are repeated after a deadlock. If a relay freezes in a transaction, the server closes its connection
// after 5 s. Numbers come from AUTO_INCREMENT, so write to only one node of a cluster.
//
// # Transactions of gorm, bun and others
//
// [Adapt] returns a store whose handlers get another type around the same transaction. For gorm there is the package
// gormstore, a module of its own below this folder. The module in adapt/ shows bun and sqlc. With such libraries it is
// easy to miss an error, such as gorm's DB.Error. On PostgreSQL the transaction then fails. On other databases it
// commits without the failed statement; with gormstore it fails on every database.
package sqlstore
