// Package watermilltx makes watermill's handlers effectively-once, and connects watermill's brokers with this module's
// outbox and consumers, on ThreeDotsLabs/watermill v1.5 and watermill-sql/v3.
//
// # A handler of a Router
//
// watermill runs the handler, publishes the messages that it produced, and then acks its message: a crash in between
// repeats the handler, or loses messages that it produced. A [Middleware] claims the message's business key, runs the
// handler, and writes the produced messages to an outbox, all in one transaction. The handler gets that transaction
// from [Tx].
//
//	once, err := watermilltx.New(watermilltx.Config[*sql.Tx]{Name: "billing", Store: store, Outbox: store, Key: consumer.JSONKey("order_id")})
//	router.AddHandler("billing", "orders", subscriber, "charges", publisher, charge).AddMiddleware(once.Middleware)
//
// The order of middlewares, from the outermost, is: Recoverer, PoisonQueue, Retry, this one, the handler. Middlewares
// of Router.AddMiddleware are outside those of Handler.AddMiddleware, so the line above has the right order. A
// middleware outside this one runs once for each delivery. A middleware inside runs within the transaction. Middlewares
// that change produced messages, such as CorrelationID, must be inside: outside there are no produced messages any
// more. Retry must not be inside: all its tries would share one transaction. Deduplicator is not needed, and it also
// suppresses messages that failed. InstantAck loses messages; the Middleware logs that.
//
// After a crash before COMMIT nothing has happened, and the message comes again. After a crash between COMMIT and ack
// the message comes again and is acked as a duplicate, without running the handler; the messages that it produced are
// in the outbox, once.
//
// After a transient error the Middleware waits and returns the error, so that the Router nacks or Retry tries again,
// each time in a new transaction; after MaxAttempts the message is parked in the database and acked. A failure that is
// not the message's fault, such as a database that is away, never parks the message: the Middleware returns the error
// as long as the failure lasts. Give [IsPoison] to middleware.PoisonQueueWithFilter, so that the poison queue does not
// take such messages either. A handler acks a copy of its message: only a commit acks the message itself.
//
// # The transaction of watermill-sql
//
// watermill-sql/v3's subscriber keeps a transaction open while a message is handled. With Config.Join the claim and the
// effect become part of it, so that they and the acknowledgement are one COMMIT. It is for PostgreSQL only, and saves
// one commit for each message.
//
// watermill-sql alone makes that unsafe. It delivers a nacked message again in the SAME transaction, which still has
// the failed attempt's writes, or refuses every statement. And when AckDeadline passes, or the subscriber is closed, it
// COMMITS the writes of a running handler so far. So each attempt has a savepoint, and a cursor that makes COMMIT fail
// while the attempt runs. "txonce: COMMIT refused" in watermill's log comes from that cursor; the message comes again.
// Handlers must not use savepoints named txonce_attempt. If an attempt of a batch (SubscribeBatchSize) is cut off, all
// messages of the batch are repeated.
//
// Without Join each attempt has a transaction of the Store's own, beside the subscriber's; that is right with every
// broker.
//
// # Consumers on watermill's brokers
//
// A [Handler] delivers a Router's messages to a consumer.Processor, so that a consumer.Consumer runs on any of
// watermill's brokers. watermill has neither delays nor delivery counts: a message waits in the Handler for its next
// attempt, for a bounded time, and attempts are counted in memory.
//
// Config.Trace, or that of the Consumer behind a Handler, reports what happens to messages. There is no
// driver.SourceTrace: partitions, leases and acknowledgements belong to watermill's subscriber and Router, which have
// no hooks for them.
//
// # An outbox on watermill's brokers
//
// With a [Publisher], a relay.Relay publishes through any of watermill's publishers. The UUID is the same in each
// publication, headers become the metadata, and the ordering key metadata [MetadataKey]; bytes that are not text are
// encoded, and [ToMessage] decodes them. A message counts as published when watermill's Publish returned nil. With
// PublisherConfig.Confirms you state that it does so only after the broker has confirmed the message; nothing else can
// find that out, and a publisher that returns earlier loses messages. Check:
//
//   - watermill-sql: the row is committed. Give it a *sql.DB. A Router closes its handlers' publishers, so give the
//     relay one of its own.
//   - watermill-kafka: it uses a sync producer, but with sarama's default acks=1. Pass OverwriteSaramaConfig with
//     Producer.RequiredAcks = WaitForAll and Producer.Idempotent = true (Net.MaxOpenRequests = 1). To keep the order of
//     keys use kafka.NewWithPartitioningMarshaler with msg.Metadata.Get(MetadataKey).
//   - watermill-amqp: set Publish.ConfirmDelivery. RabbitMQ also confirms a message that no queue takes, and
//     watermill-amqp does not notice that it is lost. adapters/rabbitmq notices.
//   - watermill-googlecloud, -aws (SQS, SNS), -redisstream, -jetstream wait for the broker's answer. -nats without
//     JetStream, -http and -io do not, or return nil for another reason: RiskUnconfirmed accepts that.
//   - gochannel keeps messages in memory; it is refused unless RiskInMemory is accepted.
//
// # Leaving the forwarder
//
// watermill's forwarder reads envelopes from a topic and publishes the messages inside. [Unwrap] and [EnvelopeKey] make
// a Consumer that moves them into an outbox instead, so that a migration loses no message.
package watermilltx
