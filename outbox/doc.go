// Package outbox keeps messages in the transaction that caused them, and relays them to a broker.
//
// A program that commits and then publishes loses messages when it dies in between; one that publishes first announces
// what may be rolled back. So the message is written with [Writer.Enqueue] by the transaction that writes the effect, and a
// [Relay] publishes it once that transaction is committed: both exist, or neither.
//
// # What is promised
//
//   - Every committed message is published at least once, always with the same ID. Only what the broker confirmed counts.
//   - First occurrences of one key stand in the order of their transactions, where those exclude each other (they lock
//     the same row, or call the store's LockOrderingKey). Keys do not wait for each other.
//   - A repeat (after a crash or a pause past the lease) may come late, even behind later messages of its key. It carries
//     the ID and the sequence number of the first occurrence, see [HeaderID] and [HeaderSequence].
//   - A message that the broker refuses stops its own key and nothing else, and is parked, never dropped.
//
// # Who does what
//
// A store (adapters/pgxstore, adapters/sqlstore) is the Writer and the [Queue]. A key belongs to one of a fixed number of
// shards; a relay holds some of them for a while by the database's clock, with a fencing token that every completion
// must show. There is no leader: any number of relays share the shards, and take over those of a dead one.
// Messages are leased by state (is it there?) and never by a cursor, because a transaction with a lower sequence number may
// commit later.
//
// An adapter (adapters/kafka, …) is the [Publisher]. It answers for each message.
//
// # IDs
//
// Within a handler of package consumer a message without ID gets one that is derived from the handled message, the topic
// and an ordinal. A handler that is executed again, because an acknowledgement was lost, enqueues the same IDs, and whoever
// receives the messages can tell repeats by them. Everywhere else the caller states the ID; none is guessed.
package outbox
