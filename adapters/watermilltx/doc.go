// Package watermilltx makes watermill's handlers effectively-once, and connects watermill's brokers with this module's outbox
// and consumers, on ThreeDotsLabs/watermill v1.5 and watermill-sql/v3.
//
// # A handler of a Router
//
// watermill acks a message after its handler returned, and publishes what it produced in between: a crash there repeats the
// handler, or loses what it produced. A [Middleware] claims the message's natural key, runs the handler, and writes what it
// produced to an outbox, all in one transaction. The handler takes that transaction with [Tx].
//
//	once, err := watermilltx.New(watermilltx.Config[*sql.Tx]{Name: "billing", Store: store, Outbox: store, Key: consumer.JSONKey("order_id")})
//	router.AddHandler("billing", "orders", subscriber, "charges", publisher, charge).AddMiddleware(once.Middleware)
//
// The order of middlewares is: Recoverer, PoisonQueue, Retry, this one, the handler. Router.AddMiddleware's stand outside of
// those of Handler.AddMiddleware, so the line above has the right order. Further out than this one, a middleware runs once for
// each delivery; further in, within the transaction, and that is where those belong that change what is produced, such as
// CorrelationID, because there is nothing left of it outside. Retry must not stand within: all its tries would share one
// transaction. Deduplicator is not needed, and remembers what failed; InstantAck loses messages, and is reported.
//
// What happens when the process dies: before COMMIT, nothing has happened, and the message comes again. After COMMIT, before
// the ack, the message comes again, is a duplicate, and acked without running; what it produced is in the outbox, once.
//
// A transient error is returned, after a wait, so that the Router nacks or Retry tries again, each time in a new transaction;
// after MaxAttempts the message is parked in the database and acked. Failures that are nobody's fault, such as a database that is away,
// are returned as long as they last and are never parked: filter middleware.PoisonQueueWithFilter with [IsPoison], so that
// it does not take such messages either. A handler acks a copy of its message: only a commit acks the message itself.
//
// # The transaction of watermill-sql
//
// watermill-sql/v3's subscriber keeps a transaction open while a message is handled. With Config.Join the claim and the effect
// become part of it, so that they and the acknowledgement are one COMMIT. It is for PostgreSQL only. Joining saves one commit
// for each message, and needs more care than it looks: watermill-sql delivers a nacked message again in the SAME transaction, in which
// the failed attempt's writes still stand, or every statement fails; and when AckDeadline passes, or its Close is called, it COMMITS what
// a running handler has written so far. So each attempt has a savepoint, and a cursor that lets COMMIT fail while the attempt runs;
// "txonce: COMMIT refused" in watermill's log is that cursor, and the message comes again. Handlers must not begin
// savepoints named txonce_attempt, and the others of a batch (SubscribeBatchSize) are repeated together with the one that was cut off.
// Without Join each attempt has a transaction of the Store's own, beside the subscriber's; that is right with every broker.
//
// # Consumers on watermill's brokers
//
// A [Handler] delivers a Router's messages to a consumer.Processor. A consumer.Consumer that runs on Kafka with
// adapters/kafka runs on any of watermill's brokers with it. watermill has neither delays nor delivery counts: a message waits for its
// next attempt in the handler, for a bounded time, and attempts are counted in memory.
//
// # An outbox on watermill's brokers
//
// A [Publisher] lets an outbox.Relay publish with any of watermill's publishers. ID becomes the UUID, headers the metadata, and
// the ordering key metadata [MetadataKey]; bytes that are not text are encoded, and [ToMessage] decodes them. A message counts as published
// when watermill's Publish returned nil. With PublisherConfig.Confirms you state that it does so only after the broker has confirmed the
// message; nothing else can find that out, and a publisher that returns earlier loses messages. Check:
//
//   - watermill-sql: the row is committed. Give it a *sql.DB. A Router closes its handlers' publishers, so give the relay one of its own.
//   - watermill-kafka: it uses a sync producer, but with sarama's default acks=1. Pass OverwriteSaramaConfig with Producer.RequiredAcks =
//     WaitForAll and Producer.Idempotent = true (Net.MaxOpenRequests = 1). To keep the order of keys use
//     kafka.NewWithPartitioningMarshaler with msg.Metadata.Get(MetadataKey).
//   - watermill-amqp: set Publish.ConfirmDelivery. RabbitMQ also confirms a message that no queue takes, and watermill-amqp does not notice
//     that it is lost. adapters/rabbitmq notices.
//   - watermill-googlecloud, -aws (SQS, SNS), -redisstream, -jetstream wait for the broker's answer. -nats without JetStream, -http and -io
//     do not, or their nil means something else: RiskUnconfirmed accepts that.
//   - gochannel keeps messages in memory; it is refused unless RiskInMemory is accepted.
//
// # Leaving the forwarder
//
// watermill's forwarder reads envelopes from a topic and publishes what is in them. [Unwrap] and [EnvelopeKey] make a Consumer that
// empties such a topic into an outbox instead, so that nothing is lost on the day of the move.
package watermilltx
