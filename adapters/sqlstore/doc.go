// Package sqlstore keeps claims, dead letters and the outbox through database/sql: a [Store] is a dedup.Store, a
// consumer.ParkingLot, an outbox.Writer and an outbox.Queue whose native transaction is *sql.Tx. It works on PostgreSQL and on SQLite, and imports no driver:
// bring pgx's stdlib, lib/pq or modernc.org/sqlite. With pgx there is adapters/pgxstore, which claims in fewer round
// trips and guards the handler's transaction better.
//
// # What a handler must not do
//
// An *sql.Tx cannot be wrapped, so a handler that ends its transaction cannot be stopped; it is found out. Before COMMIT
// the store proves that it is still in the transaction that claimed, and where it is not InTx fails with
// dedup.ErrTxEnded. What was rolled back by then is gone; but what the handler committed by itself stays committed, the
// claim with it, and what it wrote after that was committed statement by statement and stays too, with its claim or,
// after a ROLLBACK, without. Return nil to commit and an error to roll back.
//
// A statement that fails breaks a transaction on PostgreSQL; a handler that swallows such an error and returns nil gets
// ErrTxEnded too. On SQLite a statement that is cancelled while it writes rolls everything back, and so may a full disk:
// the same proof finds it.
//
// # SQLite
//
// One transaction writes at a time. In one process the others of a Store wait for their turn without a connection;
// between processes they ask again until Config.InFlightWait is over, and then fail with a Retryable error. So
// concurrency buys nothing here, and batches do. Open the database with journal_mode WAL, in which readers do not
// disturb the writer, and leave synchronous at FULL: with NORMAL a commit may be forgotten at a loss of power, and
// Register refuses it. InTx begins every transaction as an IMMEDIATE one, whatever the driver's settings. Claim in a
// transaction of your own should come before anything is read in it: SQLite refuses to write after a read when
// another connection has written since, and no waiting helps.
//
// # PostgreSQL
//
// A claim waits for a transaction that holds its key, no longer than Config.InFlightWait; the handler's own statements
// keep the session's lock_timeout. Behind PgBouncer in transaction mode use what the driver offers against prepared
// statements, such as pgx's default_query_exec_mode=exec. Claim in a transaction of your own may need a second
// connection of the pool for a moment, at the first claim under a window and then twice a day.
//
// # The outbox
//
// Enqueue writes at once, as nobody can watch an *sql.Tx for its end, or for a ROLLBACK TO SAVEPOINT. The order of messages
// is that of their numbers, which is that of commits where transactions exclude each other from before their Enqueue. So
// enqueue last, behind the row that is locked, or call [Store.Serialize] first.
//
// On SQLite a transaction that writes excludes all others, so its order is that of commits anyway. A relay there takes its
// turn with the handlers: looking for messages only reads, and each batch is settled in one short transaction. All processes
// on one file are on one machine, whose clock says when a hold is over. Relays of other processes find messages by
// polling. On PostgreSQL relays of this package and of adapters/pgxstore share one outbox; those of the latter are woken
// by NOTIFY, from a connection of its own after the commit.
package sqlstore
