// Package consumer runs a handler inside the database transaction that records its message, so that the handler's
// writes happen once although the broker may deliver the message several times.
//
// # Use
//
// [New] takes a [Config]: a name, a Store of adapters/pgxstore or adapters/sqlstore, a function that finds each
// message's business key, and a [Handler]. Give the [Consumer] to a Subscriber of one of the packages under adapters. A
// Subscriber needs no more than a [Processor], so a program can also call [Consumer.Process] itself. Beside it, run a
// dedup.Sweeper, which deletes expired keys, and [Consumer.RunReplays], which carries out replays that operators
// request.
//
// The handler must write through the transaction that it gets. Anything else it does, such as a call to another
// service, may happen more than once: send an idempotency key that is derived from the message.
//
// # How it works
//
// One transaction claims the message's key, runs the handler, and commits. Process then returns nil, and only then
// does a Subscriber acknowledge the message.
//
// When the handler fails, the transaction rolls back, and the message is tried again in a new one. After
// Config.MaxAttempts failures it is parked: the database keeps it as a [DeadLetter] until [Consumer.Replay] or
// [Consumer.Discard] is called. An error that is [Permanent] parks it at once. A failure of the database parks nothing:
// the consumer pauses until the database answers.
//
// Some messages are parked without running: a mismatch has the key of an earlier message with other content, and an
// unprovable message has no claim, but is so old that its claim may have been deleted. Causes of package ops lists all
// causes.
//
// [Consumer.Process] takes one message and sleeps between attempts. [Consumer.ProcessBatch] takes several messages,
// handles them in one transaction, and returns an answer for each message. It does not sleep between attempts: its
// caller does. When the transaction fails, it tries the failing messages apart from the others.
//
// With Config.Interleave, the handlers of a batch run at the same time in that transaction, and their statements travel
// together. This is much faster. It is right only if messages with different ordering keys do not depend on each
// other's rows.
//
// # What a crash does
//
// A crash before COMMIT leaves neither the claim nor the handler's writes, so the redelivered message runs. A crash
// after COMMIT leaves both, so the redelivered message is a duplicate and is acknowledged without running. When the
// answer to COMMIT is lost, the consumer claims the key again: the claim waits for a transaction that is still in
// progress, and then shows whether it was committed.
package consumer
