// Package chaos gives a Processor a bad day, in a staging environment: messages that are delivered twice, answers that
// come late, acknowledgements that are lost, and processes that die.
//
// Wrap goes between a Subscriber and its Consumer:
//
//	faulty, err := chaos.Wrap(orders, chaos.Config{Duplicate: 0.05, LoseAck: 0.05, Delay: time.Second})
//	subscriber, err := kafka.NewSubscriber(kafka.SubscriberConfig{…, Processor: faulty})
//
// Nothing keeps it out of production. There it costs deliveries and time, and Panic ends the worker.
//
// # What it does, and what it never does
//
// Each fault is one that brokers and machines have by themselves, so a handler that uses its transaction has each
// effect once, and an audit of the effects shows those that do not. A failure never becomes an acknowledgement: a
// message that the Consumer did not answer with nil is not acknowledged, whatever else happens to it. Batches stay
// batches. The first deliveries of an ordering key stay in order: when an acknowledgement is lost, so are those of the
// later messages of its ordering key in the batch. A copy that comes afterwards may come behind later messages of its
// key, as a message that its publisher has sent twice does.
//
// Brokers count deliveries whose acknowledgement was lost. A queue that moves messages to a dead-letter queue after few
// deliveries, by SQS's maxReceiveCount or RabbitMQ's delivery limit, may do so with messages that have taken effect.
//
// # Reproducing a day
//
// The text of a panic has the seed of its faults. The faults of a call depend on Config.Seed and on how many messages
// the calls before it had. A run with one worker that gets the same batches again, and the same Seed, has the same
// faults. With several workers the order of the calls differs, and so do the messages that are hit.
//
// consumertest.TestHandler tests a handler against each of these faults on its own. consumertest.Simulate tests it
// against many combinations, in memory.
package chaos
