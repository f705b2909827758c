// Package sqlstore keeps claims, dead letters and the outbox through database/sql: a [Store] is a dedup.Store, a
// consumer.ParkingLot, an outbox.Writer and an outbox.Queue whose native transaction is *sql.Tx. It works on PostgreSQL, SQLite, MySQL 8.0.19
// and MariaDB 10.6 and later, and imports no driver: bring pgx's stdlib, lib/pq, modernc.org/sqlite or go-sql-driver/mysql. With pgx there is adapters/pgxstore, which claims in fewer round
// trips and guards the handler's transaction better.
//
// # What a handler must not do
//
// An *sql.Tx cannot be wrapped, so a handler that ends its transaction cannot be stopped; it is found out. Before COMMIT
// the store proves that it is still in the transaction that claimed, and where it is not InTx fails with
// dedup.ErrTxEnded. What was rolled back by then is gone; but what the handler committed by itself stays committed, the
// claim with it, and what it wrote after that was committed statement by statement and stays too, with its claim or,
// after a ROLLBACK, without. Return nil to commit and an error to roll back. A handler that has committed and then returns an error gets
// ErrTxEnded with that error in it: after a failure the store asks the database whether the claim stands, where it may. Where the connection was cut, or takes no
// more statements, it asks on another one of the pool, for up to 2 s, and for up to 10 s where the database does not answer. While
// nobody answers, InTx returns the first error, and a claim that the handler had committed makes the next delivery a duplicate.
//
// In a batch VerifyTx asks the same between two handlers, so that no handler runs behind one that has ended the transaction. It
// costs a round trip for each message on PostgreSQL and MariaDB, two on MySQL, and none on SQLite. Where that
// weighs more than the handlers themselves, handle the batch as one, by HandleBatch.
//
// A statement that fails breaks a transaction on PostgreSQL; where a handler swallows such an error and returns nil, InTx fails, and the
// error says so. Rows must be closed before the handler returns: rows left open are the
// handler's error too, also where a driver takes them for a lost connection. On SQLite a statement that is cancelled while it writes rolls everything back, and so may a full disk:
// the same proof finds it.
//
// # What a handler may leave behind
//
// Every statement of the Store names the schema of its tables, which is found once; see Config.Schema. A connection whose session a
// handler has changed for good, by SET, USE or their like, is closed after its transaction, before anybody else gets it: on
// PostgreSQL search_path, role, synchronous_commit, session_replication_role, timeouts, time zone, formats of text and default_transaction_*,
// on MySQL the database, role, sql_mode, checks, sql_log_bin, character sets, time zone and limits. SET LOCAL costs a handler two
// round trips at most and no connection. Where a handler has made its own transaction's synchronous_commit weaker, COMMIT is
// sent with the one that the claim was made under. Not seen are advisory locks of the session, LISTEN, temporary tables, user
// variables, GET_LOCK, and pragmas of SQLite: do not use them in handlers. Behind PgBouncer the session that changes is the
// server's, which closing a connection does not end.
//
// # SQLite
//
// One transaction writes at a time. In one process the others of a Store wait for their turn without a connection;
// between processes they ask again until Config.ClaimTimeout is over, and then fail with a Retryable error. So
// concurrency buys nothing here, and batches do. Open the database with journal_mode WAL, in which readers do not
// disturb the writer, and leave synchronous at FULL: with NORMAL a commit may be forgotten at a loss of power, and
// Register refuses it. Without WAL COMMIT waits for those who read, for up to
// Config.ClaimTimeout and no longer than 10 s, and keeps new ones out meanwhile. InTx begins every transaction as an IMMEDIATE one, whatever the driver's settings. Claim in a
// transaction of your own should come before anything is read in it: SQLite refuses to write after a read when
// another connection has written since, and no waiting helps.
//
// # PostgreSQL
//
// A claim waits for a transaction that holds its key, no longer than Config.ClaimTimeout; the handler's own statements
// keep the session's lock_timeout. Behind PgBouncer in transaction mode use what the driver offers against prepared
// statements, such as pgx's default_query_exec_mode=exec. Claim in a transaction of your own may need a second
// connection of the pool for a moment, at the first claim under a window and then twice a day.
//
// When somebody cancels a COMMIT that waits for a synchronous standby, PostgreSQL commits on the primary alone, and answers
// COMMIT with a warning, which database/sql does not hand on. InTx then returns nil, and a failover to the standby may lose
// the commit. Package adapters/pgxstore reads the warning, and reports the commit as one of unknown outcome.
//
// # MySQL and MariaDB
//
// Dialect MySQL is for both; the Store asks the server which it is. It is tested on MariaDB 10.11, and what it would send to
// MySQL there too; not on MySQL itself. Nothing depends on the DSN's parseTime, loc, clientFoundRows, interpolateParams or
// multiStatements, nor on the session's time_zone: times are numbers of microseconds, and a claim tells a new key from a
// known one by a random token in its row, never by a count of rows. Register refuses by name what would lose something: a
// key column that folds case, tables that are not InnoDB, a sql_mode that is not strict, a charset other than utf8mb4,
// autocommit=0 in the DSN, a read-only server, innodb_flush_log_at_trx_commit other than 1, and with a binary log
// sync_binlog other than 1.
//
// In a transaction of InTx autocommit is off, and a savepoint stands behind the claim. A deadlock rolls the whole transaction
// back, and a handler that swallows it (error 1213) would write on outside of it: the savepoint is gone then, what came
// after is rolled back, and InTx fails with dedup.ErrTxEnded. The same finds out ROLLBACK and COMMIT as text, and DDL, which
// commits: what stood before it stays, with its claim. Any other failed statement undoes itself alone, also one that waited
// too long for a lock (1205, unless innodb_rollback_on_timeout is on): a handler that swallows its error has decided to
// do without that statement, and the rest commits. In a transaction of your own, Claim has none of these guards: roll back
// after every error.
//
// A claim waits no longer than Config.ClaimTimeout, in whole seconds on MySQL; the handler's own statements keep the
// session's innodb_lock_wait_timeout. The isolation level is READ COMMITTED, whatever the server's default; above it gap
// locks make neighbours wait, and deadlocks, which are Retryable, are common.
//
// A COMMIT or claim that is cut off holds its locks until the server sees the connection gone. IdleInTxTimeout is wait_timeout
// here. Behind a semi-synchronous replication that shows commits before a replica has them (AFTER_COMMIT) a duplicate writes
// its row anew, so that its COMMIT waits as well.
//
// # The outbox
//
// Enqueue writes at once, as nobody can watch an *sql.Tx for its end, or for a ROLLBACK TO SAVEPOINT. The order of messages
// is that of their numbers, which is that of commits where transactions exclude each other from before their Enqueue. So
// enqueue last, behind the row that is locked, or call [Store.LockOrderingKey] first.
//
// On SQLite a transaction that writes excludes all others, so its order is that of commits anyway. A relay there takes its
// turn with the handlers: looking for messages only reads, and each batch is settled in one short transaction. All processes
// on one file are on one machine, whose clock says when a hold is over. Relays of other processes find messages by
// polling. On PostgreSQL relays of this package and of adapters/pgxstore share one outbox; those of the latter are woken
// by NOTIFY, from a connection of its own after the commit.
//
// On MySQL and MariaDB relays of other processes poll, as there is no NOTIFY. LockOrderingKey locks a row: each key has one of
// 1,024 slots, so that two keys wait for each other without need now and then; a transaction that calls it with several
// keys may meet another in a deadlock, which is Retryable. It waits as long as the session's innodb_lock_wait_timeout. Messages are
// written one statement for 500 of them or 1 MB; with interpolateParams=true in the DSN a statement is one round trip, not two. A
// message must fit in the server's max_allowed_packet, and is an outbox.ErrBadMessage otherwise. Relays' transactions are READ
// COMMITTED and lock no gaps, and one that a deadlock has ended is made again. A relay that freezes in the middle of one is
// cut off by the server after 5 s. Numbers come from AUTO_INCREMENT, so write to one node of a cluster.
//
// # Transactions of gorm, bun and others
//
// [Adapt] makes of a Store one whose handlers take another type around the same transaction; the module in lift/ has it for
// gorm, bun and what sqlc generates. Such libraries have errors that are easily overlooked, such as gorm's DB.Error: on
// PostgreSQL the transaction of a handler that swallows one fails, elsewhere the statement alone is missing from what is committed. The
// example for gorm registers callbacks that have the transaction fail everywhere.
package sqlstore
