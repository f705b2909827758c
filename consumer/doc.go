// Package consumer runs a handler inside the database transaction that claims its message.
//
// A message broker delivers each message at least once. A [Consumer] makes that effectively once: in one transaction it
// claims the message's natural key, runs the [Handler], and commits. nil means committed, and only then does a
// Subscriber acknowledge. A crash before COMMIT leaves nothing behind, and the redelivery runs; a crash after it leaves
// the claim, and the redelivery is a duplicate that is acknowledged without running. When the answer to a COMMIT is lost,
// the key is claimed again: that waits for a transaction still in progress, and then it knows.
//
// What the handler writes through its transaction happens once. What it does elsewhere, such as calling somebody
// else's API, may happen more than once: pass a key derived from the message along.
//
// A handler's error rolls back. The message is tried again, in a new transaction each time, until it is given up on and
// parked in the database as a [DeadLetter], where it waits for a person to replay or to discard it. [Permanent] gives up
// at once. Nothing is ever parked for other people's faults: while the database is away, the consumer pauses.
//
// Not every message may run. One whose key was used for other content is a mismatch, and one that is older than what the
// store has forgotten, and has no claim, is unprovable; both are parked. Neither is dropped or run silently.
//
// [Consumer.Process] takes one message and sleeps between its attempts. [Consumer.ProcessBatch] takes many, puts them in
// one transaction, and never sleeps: it takes failures out of the batch and says of each message what to do with it.
// Subscribers for brokers are in the packages under adapters; [Processor] is all they need to know.
package consumer
