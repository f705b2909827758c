// Package kafka receives from Apache Kafka and sends to it, on IBM/sarama. A [Subscriber] is one member of a consumer group and
// delivers to a consumer.Processor; a [Publisher] sends what a relay.Relay has taken from an outbox.
//
// # Receiving
//
// Kafka remembers one number per group and partition, the offset up to which everything is done. The Subscriber moves
// that number over a message only when the Processor has answered nil for it and for every message delivered before
// it. A crash anywhere repeats messages and never skips one; the Processor, a consumer.Consumer, sees to it that a
// repeated message has no second effect.
//
// Messages of a partition are delivered in order, in batches of what is already waiting (a batch never waits to be
// filled) where the Processor is a consumer.BatchProcessor, one by one where it is not. A message that is to be retried
// is kept in memory and delivered again by the Subscriber itself. Meanwhile messages with other keys go on, messages
// with its key wait, and the offset stays below it. While the database is away everything is retried: that is a pause,
// in which the member keeps its partitions, because sarama sends heartbeats in the background. The count of attempts is
// lost when a partition moves to another member. A Processor that is no BatchProcessor sleeps between attempts, and its
// partition with it.
//
// One message of a partition, or one batch, is handled at a time, unless SubscriberConfig.Concurrency allows for more: then
// messages of different keys are handled side by side, those of one key still one after the other. The offset stays below
// the first that is unfinished, so a crash repeats all that was finished behind it, and the Processor suppresses that.
//
// When the group takes a partition away, or Run's context ends, the Subscriber starts nothing more, waits for the
// handler that is running, at most for the grace period, and then cancels its context. A handler that goes on
// regardless is a zombie: whatever it does, of it and the partition's new owner exactly one commits.
//
// Markers that end Kafka transactions, and the messages of aborted ones, are never delivered. When a partition has been idle for a
// second, the Subscriber moves the offset over those too, so that retention which deletes them is not taken for a loss.
//
// Not every loss can be repaired from here, so settings that lose messages quietly are refused by name, and so is a
// Processor that forgets keys sooner than the topics forget messages. What can be lost only loudly is an error of Run:
// messages deleted before the group handled them, and a message that the Processor gave up on and kept nowhere.
//
// # Sending
//
// A message counts as published when all in-sync replicas of its partition have confirmed it. sarama's producer is idempotent, so its
// own retries neither repeat a message nor let one overtake another. A message that is not confirmed by the end of the call is an error,
// and will be published again. It may arrive twice then, the second time behind later messages of its key, with the same ID and
// sequence number in its headers.
//
// Order within a key is order within a partition: the key alone chooses it, and two relays must choose alike. Whoever adds partitions
// to a topic moves keys, and messages on both sides of that moment have no order. A message's timestamp is that of its publication.
//
// While brokers are away each message's error is an *outbox.UnavailableError. The relay counts nothing against the messages and rests the
// Publisher; a program that calls Publish without a relay waits between its calls itself. Memory holds no more than the running calls.
// A message that a broker refuses stops its key only. A broker refuses batches, not messages: the messages of a batch that is too large
// are sent again, each in a request of its own, before one is refused for good. That is slow, so set Producer.MaxMessageBytes to the
// smallest max.message.bytes of the topics.
//
// Kafka transactions are not used, although a Publisher that is all-or-nothing might be given several messages of one key in a call. Readers
// that insist on committed messages, as the Subscriber does, would stand still behind a relay that died, until its transaction has
// timed out: for 25 s where the timeout was 20 s, when it was tried. A call of 100 messages took 218 ms
// instead of 9 in one trial on a loaded machine. And each relay process would need a transactional id of its own: two with one fence each other.
//
// # Settings
//
// [NewConfig] returns sarama's defaults with the settings that the Subscriber and the Publisher insist on. Automatic commits are
// among them: they are safe here, because only what is finished is ever marked. Eager and cooperative rebalancing and static
// members (Consumer.Group.InstanceId) work as the sarama.Config says.
package kafka
