// Package pgxstore is a store of txonce on PostgreSQL, through pgx/v5. It keeps the claims of processed messages, dead
// letters and the outbox.
//
// To use it, apply the migrations with Migrate, create a Store with New, and set it in consumer.Config, and in
// relay.Config if you publish messages. Run a dedup.Sweeper with it, which deletes expired keys. A handler gets an
// ordinary pgx.Tx with all its methods: CopyFrom, SendBatch, savepoints, also through sqlc. Methods and statements that
// end the transaction are refused: a handler that committed or rolled back itself could write effects without the
// claim. A handler returns nil to commit and an error to roll back. Handlers of different messages that must not run at
// the same time call LockKeys.
//
// # How it works
//
// A claim takes one round trip: BEGIN, and an INSERT into processed_messages. The INSERT waits up to
// Config.ClaimTimeout for a transaction that holds the same key. If a message is older than half an hour, the same
// round trip also reads the horizon: claims of messages from before it may have been deleted. Then the handler runs,
// and then InTx sends COMMIT. A duplicate writes nothing: no WAL, no transaction id. It takes two round trips, or one
// if its Record is Redelivered or if it comes in a run of duplicates.
//
// Pipeline makes a consumer.BatchHandler whose messages queue their statements, so that those of a whole batch take one
// round trip. The statements of a message that is alone travel with COMMIT. With consumer.Config.ClaimLate the claim
// travels with them too.
//
// With consumer.Config.Interleave the ordinary handlers of a batch run at the same time in one transaction. Statements
// that wait at the same time travel in one round trip, in the order of the messages.
//
// If the handler uses the connection itself (Tx.Conn), or sends several statements in one string, InTx asks the server
// before COMMIT whether the transaction that made the claim is still open.
//
// # Goroutines of a handler
//
// A handler must wait for its goroutines before it returns. The methods of its transaction fail afterwards, and a call
// that is still in progress rolls the transaction back. But a connection from Tx.Conn or Rows.Conn is the pool's: a
// goroutine that keeps it can send statements after the handler has returned. They are then committed without a claim,
// or in the transaction of another message. The Store notices only a statement that runs when the handler returns. It
// does not close the connection after each handler that has called Conn, because a new connection takes as long as
// several messages.
//
// Messages that the handler enqueues for the outbox are sent together with COMMIT. They need no round trip of their
// own, and among transactions that exclude each other, their sequence numbers follow the order of the commits.
//
// All of this also works behind a pooler in transaction mode, if the pool's DefaultQueryExecMode suits it; Register
// checks that. Only LISTEN needs Config.Direct, which connects without the pooler. See docs/poolers.md.
//
// # After a crash
//
// After a crash before COMMIT, nothing was written, and the message is processed when it is delivered again. After a
// crash that follows COMMIT, the next delivery is a duplicate. If the connection is lost during COMMIT, InTx returns a
// Retryable error, and the next attempt finds out from the claim whether COMMIT succeeded.
package pgxstore
