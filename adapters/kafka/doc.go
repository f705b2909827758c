// Package kafka receives from Apache Kafka, on IBM/sarama: a [Subscriber] is one member of a consumer group and
// delivers to a consumer.Processor.
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
// When the group takes a partition away, or Run's context ends, the Subscriber starts nothing more, waits for the
// handler that is running, at most for the grace period, and then cancels its context. A handler that goes on
// regardless is a zombie: whatever it does, of it and the partition's new owner exactly one commits.
//
// Not every loss can be repaired from here, so settings that lose messages quietly are refused by name, and so is a
// Processor that forgets keys sooner than the topics forget messages. What can be lost only loudly is an error of Run:
// messages deleted before the group handled them, and a message that the Processor gave up on and kept nowhere.
//
// # Settings
//
// [NewConfig] returns sarama's defaults with the settings that the Subscriber insists on. Automatic commits are among
// them: they are safe here, because only what is finished is ever marked. Eager and cooperative rebalancing and static
// members (Consumer.Group.InstanceId) work as the sarama.Config says.
package kafka
