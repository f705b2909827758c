// Package watermark remembers where a relay on PostgreSQL begins to read the messages of a shard: behind the rows of
// messages that were published and deleted. Without it, while another transaction is held open and keeps the dead
// versions of deleted rows, each poll would read all of them.
//
// # The rule
//
// A session has one watermark for the sequence, and for each shard a low, where a poll of that shard begins. A low
// never passes the watermark:
//
//	watermark  every message with a seq up to it is visible now, or will never be committed
//	low        the shard has no message with a smaller seq; at most the seq of its first message, and at most the watermark + 1
//	skip       all messages of the shard with a smaller seq wait, until a time that is known; at most the watermark + 1
//
// The watermark moves in three steps: read the last seq that the sequence has assigned, then read which transactions
// hold a lock on the table of messages, and wait until all of these have ended. The first step calls
// pg_sequence_last_value, because a query of the sequence may read a number that is not assigned yet. An INSERT takes
// that lock before it takes its seq, and keeps it until its transaction has ended. So a transaction without the lock
// either has not taken its seq yet, which is then greater, or has committed and is visible to later polls. Nothing
// waits for snapshots, or for transactions that do not write to the outbox.
//
// # Messages that wait
//
// Messages wait after a failure, and behind one of their key that waits. When the broker does not have a topic, all
// messages of that topic wait, and each poll would read all of them, because a low does not pass them. So a poll that
// has read them reports until when the first of them waits, by the server's clock. The statements of the next polls
// begin at the skip while the clock is before that time, and otherwise at the low.
//
// Until that time no message below the skip stops waiting: only Unpark and Discard make a wait shorter, and both
// increment txonce_shards.returned. So the order of a key holds: a message above the skip still waits behind a message
// of its key below the skip. What makes a low invalid makes the skip invalid too. A skip is used for a minute at most,
// so that even a person who changes outbox_held only delays messages.
//
// # Messages that appear below a low or a skip
//
// A message that a low passed would never be published. These are all the ways to get one:
//
//	a transaction that commits late     the watermark waits for it, also when it is prepared for two-phase commit
//	Unpark, and the release of messages they count the return of messages in txonce_shards.returned, in their transaction; the statement of
//	behind a parked one                 the poll compares that with the count that belongs to the low, and begins at the first row if they differ
//	a retry that comes due              the row never left; a poll returns the first row of a shard even if it waits, and the low is at most there;
//	                                    the skip ends at that time
//	a delayed message                   it gets a new seq when it becomes due
//	another relay had the shard         a low holds for one token of the shard, and each relay that takes the shard gets a new token
//	a poll that began earlier           it raises a low only with the watermark from before its statement was sent
//	a failover or a restored backup     the sequence is lower than before, or the server has started or recovered from a crash since: all lows
//	                                    are dropped, and polls that run at that time raise none
//	a person who resets the sequence,   Check finds rows below a low, and all lows are dropped. Until then such a message waits: up to half a
//	gives it a cache, or inserts an     minute with 64 shards
//	old seq
//
// The lows are in memory only: after a crash a relay begins at the first row.
package watermark
