// Package pgxstore keeps claims and dead letters in PostgreSQL through pgx/v5; its transactions are pgx.Tx.
//
// A handler gets an ordinary pgx.Tx with everything on it: CopyFrom, SendBatch, savepoints, sqlc. Only ending the
// transaction is refused, by method and by statement, because what a handler writes after a COMMIT or ROLLBACK of its
// own would stand without its claim. Where it takes the connection itself (Tx.Conn) or sends several statements in one
// string, the store asks the server before COMMIT whether this is still the transaction that claimed.
//
// The path of a claim, in one round trip: BEGIN, and the INSERT into processed_messages, which waits for a transaction
// that holds the same key for at most Config.ClaimTimeout; for messages older than half an hour also the question up to
// when keys were forgotten. Then the handler runs; then COMMIT. A duplicate writes nothing: no WAL, no transaction id.
//
// What the handler enqueues for the outbox travels with COMMIT: no round trip of its own, and sequence numbers that follow
// the order of transactions that exclude each other.
//
// Crash before COMMIT: nothing happened. Crash after COMMIT: the next delivery is a duplicate. Connection lost during
// COMMIT: InTx fails with an error that is Retryable, and whoever tries again learns from the claim what happened.
//
// Transactions that concern more than their own message's key exclude each other by Lock.
//
// The tables come from package migrations: Migrate applies them. All works behind a pooler in transaction mode, given a pool
// whose DefaultQueryExecMode suits it, which is checked at start; only LISTEN needs Config.Direct, a way past it. See
// docs/poolers.md.
package pgxstore
