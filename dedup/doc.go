// Package dedup tells a transaction whether it is the first one that processes a key, and remembers the key.
//
// # Use
//
// Most programs do not call this package. They give a [Store] of adapters/pgxstore or adapters/sqlstore to a
// consumer.Consumer, and run a [Sweeper], which deletes expired keys. A program that owns its transaction calls
// Store.Claim in it, and writes its effect only if the [Verdict] is First.
//
// # How it works
//
// A Store keeps one row per key in the table processed_messages of the application's own database. The transaction that
// writes the effect also inserts the row, so that one COMMIT makes both visible. The unique index on the key is the
// lock: a second transaction with the key waits for the first one.
//
// The answer to a claim is a Verdict instead of a bool, because there are two more cases: the key was used for other
// content (Mismatch), or it may have been used and forgotten (Unprovable). Keys are kept for a [Record]'s Window. The
// transaction that deletes expired keys also records the latest expiry time of the keys that it deletes. The horizon is
// computed from that. A message from before the horizon that has no row may have been processed, so it is Unprovable.
//
// # What a crash does
//
// A crash leaves either the effect and the row, or neither. There is no status column and no lease, so nothing needs to
// be repaired.
//
// An error of COMMIT does not tell whether the transaction is committed. Reading the row does not tell either, because
// the transaction may still be committing. Claim the key again: the claim waits for the transaction in progress. Then
// Duplicate means that it committed, and First means that it never will.
package dedup
