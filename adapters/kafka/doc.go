// Package kafka receives from Apache Kafka and sends to it, on IBM/sarama. A [Subscriber] is one member of a consumer
// group and delivers to a consumer.Processor; a [Publisher] sends what a relay.Relay has taken from an outbox.
//
// # Receiving
//
// Kafka stores one number per group and partition: the committed offset. All messages below it are done. The Subscriber
// moves it over a message only when the Processor has answered nil for that message and for all messages delivered
// before it. A crash repeats messages and never skips one; the Processor, a consumer.Consumer, makes sure that a
// repeated message has no second effect.
//
// Messages of a partition are delivered in order: in batches of waiting messages when the Processor is a
// driver.BatchProcessor (a batch never waits to be filled), otherwise one by one. A message to be retried stays in
// memory, and the Subscriber delivers it again itself. Meanwhile messages with other keys go on, messages with its key
// wait, and the committed offset stays below it. While the database is away all messages are retried. The member keeps
// its partitions during that pause, because sarama sends heartbeats in the background. The count of attempts is lost
// when a partition moves to another member. A Processor that is not a BatchProcessor sleeps between attempts, and
// delays its partition.
//
// One batch of a partition is handled at a time, unless SubscriberConfig.Concurrency is higher: then messages of
// different keys are handled in parallel, those of one key still one after the other. The committed offset stays below
// the first unfinished message, so a crash repeats the finished ones behind it, and the Processor suppresses them.
//
// When the group revokes a partition, or Run's context ends, the Subscriber begins nothing more, waits for running
// handlers, at most for the grace period, and then cancels their contexts. If a handler goes on nevertheless, only one
// of the two commits: this handler or that of the partition's new owner.
//
// With a store of this module, the Subscriber commits an offset only after its position is committed in the database.
// When the database goes back, because a failover lost commits or a backup was restored, the Subscriber reads again from
// the position: lost messages are handled again, and the others are duplicates. Commits must be durable for that: see
// AllowAsyncCommit of the store, and docs/operations.md.
//
// Markers that end Kafka transactions, and the messages of aborted ones, are never delivered. When a partition has been
// idle for a second, the Subscriber moves the committed offset over those too, because otherwise their deletion by
// retention would look like a loss.
//
// The Subscriber refuses settings that silently lose messages, topics whose cleanup.policy contains compact, and a
// Processor that forgets keys sooner than the topics forget messages. Compaction deletes older messages of a key
// although the group has not handled them, and the gap that it leaves in the offsets is not noticed. When it can only
// report a loss, Run ends with an error: messages were deleted before the group handled them, or the Processor gave up
// on a message and stored it nowhere.
//
// # Sending
//
// A message counts as published when all in-sync replicas of its partition have confirmed it. sarama's producer is
// idempotent, so its own retries neither repeat a message nor let one overtake another. A message that is not confirmed
// by the end of the call is an error, and will be published again. It may arrive twice then, the second time behind
// later messages of its key, with the same ID and sequence number in its headers.
//
// Kafka keeps order within a partition only. So the key alone chooses the partition, in the same way in each relay.
// Adding partitions to a topic moves keys to other partitions: messages of one key that were sent before and after have
// no order. A message's timestamp is that of its publication.
//
// While brokers are away each message's error is an *outbox.UnavailableError. The relay counts no attempts then, and
// gives the Publisher no messages for a while. A program that calls Publish without a relay must wait between its calls
// itself. Memory holds only the messages of running calls.
//
// A message that a broker refuses stops its key only. A broker refuses batches, not messages: the messages of a batch
// that is too large are sent again, each in a request of its own, before one is refused for good. That is slow, so set
// Producer.MaxMessageBytes to the smallest max.message.bytes of the topics.
//
// Kafka transactions are not used. With them, one call could hold several messages of a key. But readers of committed
// messages, such as the Subscriber, would wait for a dead relay's transaction until it times out: in a trial 25 s with
// a timeout of 20 s. A call of 100 messages took 218 ms instead of 9 in one trial on a loaded machine. And each relay
// process would need a transactional ID of its own, because two processes with the same ID fence each other.
//
// # Settings
//
// [NewConfig] returns sarama's defaults with the settings that the Subscriber and the Publisher insist on. Automatic
// commits are among them: they are safe here, because only finished messages are marked. Eager and cooperative
// rebalancing and static members (Consumer.Group.InstanceId) work as the sarama.Config says.
package kafka
