// Package dedup says whether a transaction is the first to see a key, and remembers it.
//
// A [Store] keeps one row per key in the application's own database, in the table processed_messages. The row is
// inserted by the transaction that also writes the effect: both become visible with one COMMIT, or neither does.
// The unique index on the key is the lock. There is no status column, no lease and no second step that could be
// forgotten, because a crash anywhere leaves the database with both or with none.
//
// The answer to "may I process this?" is a [Verdict] and not a bool. A bool has no room for the two cases in which
// both answers would be wrong: the key was used for other content ([Mismatch]), and the key may have been forgotten
// ([Unprovable]). Keys are kept for a [Record]'s Window and then forgotten by a [Sweeper]; whoever forgets writes down,
// in the same transaction, up to when. A message without a row that is older than that horizon cannot be shown to be
// new, and so it is never run silently.
//
// Most programs do not call this package: they give a Store of adapters/pgxstore or adapters/sqlstore to a
// consumer.Consumer. Programs that own their transaction call [Store.Claim] in it.
//
// A failed COMMIT proves nothing, and neither does a look-up afterwards, because the old transaction may still be
// committing. Claim the key again: the claim waits for the transaction in progress, and then Duplicate means that it
// committed, First that it never will.
package dedup
