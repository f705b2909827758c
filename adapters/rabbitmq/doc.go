// Package rabbitmq receives from RabbitMQ and sends to it, on rabbitmq/amqp091-go. A [Subscriber] delivers the messages of a queue to a
// consumer.Processor; a [Publisher] sends what a relay.Relay has taken from an outbox.
//
// # Receiving
//
// A message is acknowledged, by itself and on the channel that delivered it, when the Processor has answered nil for it. Until then
// it stays with the server. A crash anywhere delivers messages again and loses none; the Processor, a consumer.Consumer,
// sees to it that a message that comes again has no second effect. When a connection is lost the server gives what it held to
// others at once: handlers are cancelled then, whatever they do of them and the new owner exactly one commits, and the
// Subscriber connects again.
//
// A message that failed is put off: a copy goes to a queue for retries, from where the server brings it back, and only
// when the server has confirmed the copy is the original acknowledged. A crash in between leaves both, and one of them is suppressed. It comes back
// after the delay asked for, and not after more than twice that. These queues are called <queue>.txonce.retry.<milliseconds>; there is
// one for each doubling of the delay from a second on, made when first needed ([DeclareRetryQueues] makes them beforehand), and they
// stay until somebody deletes them ([RetryQueues] names them). They are quorum
// queues that bring messages back at least once, which takes RabbitMQ 3.10: the usual way back may lose a message in a crash. Where they cannot be
// made, and in the ten seconds after they were or a Subscriber has found them, what is to be retried waits in memory: when RabbitMQ crashes it may
// forget a queue that is a few seconds old, with the messages it has confirmed. Messages that wait only
// because the database is away stay in memory too: then no more than Prefetch messages are held.
//
// RabbitMQ keeps order for one receiver at a time. SubscriberConfig.Ordered handles the messages of one key in their order, with
// failures waiting in memory and what has their key behind them; of several processes one receives and the others stand by.
//
// Stops, crashes and lost connections count towards the delivery limit of a quorum queue, and without a dead letter exchange RabbitMQ
// drops what exceeds it: such a queue is refused. RabbitMQ 4 has a limit of 20 unless the queue says otherwise. A Subscriber whose user may
// configure the queue reads its arguments, with declarations that the server refuses or finds equal; where it may not,
// SubscriberConfig.Spec is believed, until a delivery shows that the queue is a quorum queue and Spec says otherwise: then Run ends with an error. What
// policies add nobody is told, so Spec has to say it.
//
// Message.Attempt counts the failures of handlers and nothing else: a message that comes back because a connection, a channel or a process
// was lost is the same attempt. So a message whose handler ends the process is delivered for ever, unless a quorum queue's delivery limit gives it to
// a dead letter exchange.
//
// A copy keeps all of its message but two things, which a Processor does not see. Its routing key becomes the queue's name, so a dead letter
// exchange must route that too, or have x-dead-letter-routing-key set. And it does not expire: expiration bounds how long a
// message waits to be received, and a message that was received is handled or parked, never dropped.
//
// When a message is not settled within the server's consumer_timeout, 30 minutes, it closes the channel and delivers all that it held
// again; a warning says so when four fifths of it have passed.
//
// Messages should have a message-id: without one nothing tells two messages of equal content apart. See [ToMessage].
//
// # Sending
//
// A message counts as published when the server has confirmed it and no queue was missing (mandatory). A message that is not confirmed by
// the end of the call is an error and will be published again; it may arrive twice then, with the same message-id.
//
// Each message is confirmed by itself. A queue that confirms nothing for 5 seconds, such as a quorum queue without a majority, is stalled. The
// Publisher gives up its connection, because RabbitMQ stops reading from a connection on which too many messages wait for a queue. On the next
// connection the stalled queue has a channel of its own: at most 16 messages are sent to it until they are confirmed, others get an
// *outbox.UnavailableError at once, and after 10 seconds another 16 are tried. Messages to other queues are not held up, and confirmed messages
// are not repeated.
//
// A server that is short of memory or disk blocks all publishers. Nothing is sent to it then, and neither Close nor the end of Run waits for it.
//
// While the server is away each message's error is an *outbox.UnavailableError. The relay rests the Publisher; a program that calls Publish
// without a relay waits between its calls itself.
package rabbitmq
