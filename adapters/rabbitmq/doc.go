// Package rabbitmq receives from RabbitMQ and sends to it, on rabbitmq/amqp091-go. A [Subscriber] delivers the messages
// of a queue to a consumer.Processor; a [Publisher] sends what a relay.Relay has taken from an outbox.
//
// # Receiving
//
// A message is acknowledged, by itself and on the channel that delivered it, when the Processor has answered nil for
// it. Until then it stays with the server. A crash anywhere delivers messages again and loses none; the Processor, a
// consumer.Consumer, makes sure that a message that is delivered again has no second effect. When a connection is lost,
// the server delivers its messages to others at once. The handlers are cancelled then. If a handler goes on
// nevertheless, only one of the two commits: this handler or that of the new receiver. The Subscriber connects again.
//
// A message that failed is deferred: a copy goes to a retry queue, and the server moves it back after the delay. The
// original is acknowledged when the server has confirmed the copy. A crash between the two leaves both, and one of them
// is suppressed. The message comes back after the delay that the Processor asked for, and before twice that delay or
// one second, whichever is longer.
//
// Retry queues are called <queue>.txonce.retry.<milliseconds>. There is one for each doubling of the delay from one
// second on. They are declared when they are first needed ([DeclareRetryQueues] declares them beforehand), and stay
// until they are deleted ([RetryQueues] returns their names). They are quorum queues with at-least-once dead-lettering,
// which needs RabbitMQ 3.10, because ordinary dead-lettering may lose a message in a crash. When they cannot be
// declared, and in the ten seconds after they were declared or found, messages to be retried wait in memory: a crash of
// RabbitMQ may lose a queue that is a few seconds old, with its confirmed messages. Messages that wait only because the
// database is away stay in memory too. There are never more than Prefetch messages in memory.
//
// RabbitMQ keeps order for one receiver at a time. SubscriberConfig.Ordered handles the messages of one key in their
// order: failed messages wait in memory, and the later ones of their key wait behind them. Of several processes one
// receives, and the others wait until it ends.
//
// Stops, crashes and lost connections count towards the delivery limit of a quorum queue. Without a dead letter
// exchange RabbitMQ drops messages that exceed it, so such a queue is refused. RabbitMQ 4 has a limit of 20 unless the
// queue says otherwise. A Subscriber whose user may configure the queue reads its arguments: it declares the queue, and
// the server's refusals name them. Otherwise the Subscriber relies on SubscriberConfig.Spec, until a delivery shows
// that the queue is a quorum queue although Spec says otherwise; then Run ends with an error. A client cannot see what
// the server's policies add: set that in Spec.
//
// Also refused are queues that drop messages when they are full ([RiskMaxLength]), queues that the server deletes with
// their messages ([RiskTemporaryQueue]), and streams, which have no place where a Subscriber could go on. Whether a
// queue is auto-delete or not durable is known only if the user may configure it.
//
// Message.Attempt counts only failures of handlers: a message that comes back because a connection, a channel or a
// process was lost is the same attempt. So a message whose handler ends the process is delivered for ever, unless the
// delivery limit of a quorum queue moves it to a dead letter exchange.
//
// A copy differs from its message in two properties, which a Processor does not see. First, its routing key is the
// queue's name, so a dead letter exchange must route that name too, or the queue must have x-dead-letter-routing-key.
// Second, it does not expire.
//
// An expiration limits how long a message waits to be received. RabbitMQ counts it from the message's first arrival: a
// message that was received and goes back too late is dropped, or moved to the dead letter exchange. So a copy also
// replaces a message with an expiration when the database is away and when Run ends before the message is handled.
// RabbitMQ may still drop such a message when the process crashes, when the connection or the channel is lost, when the
// server does not take the copy before Run ends (a warning names the message), and in Ordered mode also when Run ends,
// because a copy would lose its place in the order. A dead letter exchange keeps these messages. A warning is logged at
// the first message with an expiration if the queue has none.
//
// When a message is not settled within the server's consumer_timeout, 30 minutes, the server closes the channel and
// delivers all its messages again. So a message that is not finished after four fifths of
// SubscriberConfig.ConsumerTimeout goes back alone, with a warning, while its handler goes on. In Ordered mode there is
// only the warning.
//
// Messages should have a message-id: without it nothing tells two messages of equal content apart. See [ToMessage].
//
// # Sending
//
// A message counts as published when the server has confirmed it and no queue was missing (mandatory). A message that
// is not confirmed by the end of the call is an error and will be published again; it may arrive twice then, with the
// same message-id.
//
// Each message is confirmed by itself. A queue that confirms nothing for 5 seconds, such as a quorum queue without a
// majority, is stalled. The Publisher gives up its connection, because RabbitMQ stops reading from a connection with
// too many messages that wait for a queue. On the next connection the stalled queue has a channel of its own: at most
// 16 messages are sent to it until they are confirmed, others get an *outbox.UnavailableError at once, and after 10
// seconds another 16 are tried. Messages to other queues are not held up, and confirmed messages are not repeated.
//
// A server that is short of memory or disk blocks all publishers. Nothing is sent to it then, and neither Close nor the
// end of Run waits for it.
//
// While the server is away each message's error is an *outbox.UnavailableError. The relay then gives the
// Publisher no messages for a while. A program that calls Publish without a relay must wait between its calls itself.
package rabbitmq
