// Package outbox writes messages in the database transaction that causes them, so that a message is published when the
// transaction is committed, and only then.
//
// A program that commits and then publishes loses messages when it dies in between. One that publishes first announces
// changes that may be rolled back. So a handler enqueues its message with [Writer.Enqueue] in its own transaction:
//
//	err := store.Enqueue(ctx, tx, outbox.Message{Topic: "charges", OrderingKey: order.ID, Payload: payload})
//
// and a relay (package outbox/relay) publishes it after the commit. Run a relay in every process.
//
// # What is promised
//
//   - Every committed message is published at least once, always with the same ID. A message is done when the broker
//     has confirmed it.
//   - First publications of one key come in the order of their transactions, where these exclude each other: they lock
//     the same row, or call the store's LockOrderingKey. Keys do not wait for each other.
//   - A repeat, after a crash or after a pause that outlasted the lease, may come late, even behind later messages of
//     its key. It carries the ID and the sequence number of the first publication, see [HeaderID] and [HeaderSequence].
//   - When the broker refuses a message, later messages of its key wait. After relay.Config.MaxAttempts it is parked;
//     it is never dropped. Other keys go on.
//
// # How it works
//
// A store (adapters/pgxstore, adapters/sqlstore) is the [Writer], and the Queue of package outbox/driver. An adapter
// (adapters/kafka, …) is the [Publisher]. The relay is between them.
//
// A key belongs to one of a fixed number of shards, and one relay at a time holds a shard, for a limited time by the
// database's clock, with a fencing token that it sends with each settlement. There is no leader: any number of relays
// share the shards and take over those of a dead relay. A relay finds messages by their state, because a transaction
// with a lower sequence number may commit later. It skips only numbers below which every message is known to be gone.
//
// # IDs
//
// Within a handler of package consumer, a message without ID gets one that is derived from the handled message, the
// topic and an ordinal. A handler that runs again enqueues the same IDs, and receivers can recognize the repeats.
// Outside of a handler the caller must set the ID. The same holds where several goroutines of one handler enqueue,
// because their order may differ between two runs. driver.WithScope (outbox/driver) has the rules.
//
// # What a crash does
//
// Before the commit: the messages are gone with the transaction, and the handler runs again. After it: a relay
// publishes them. A relay that dies after it has published a message, and before it has recorded that, causes a repeat.
package outbox
