// Package awssqs receives from Amazon SQS and sends to it, on aws-sdk-go-v2.
//
// # Receiving
//
// A [Subscriber] deletes a message when its Processor has handled it, which a Consumer has done when its transaction is
// committed. Until then SQS keeps the message.
//
//   - A crash before the commit: no effect has happened. SQS delivers the message again when its visibility timeout
//     expires, so a crash delays the process's messages by that time.
//   - A crash after the commit and before the deletion: the message is delivered again, is a duplicate, and is deleted.
//   - A process that stalls for longer than the visibility timeout, or cannot reach SQS for that long, has lost its
//     messages: their handlers are cancelled, and the process neither deletes them nor changes their visibility. When a
//     handler commits nevertheless, the other delivery is a duplicate. A FIFO queue also refuses late deletions.
//   - A stop: waiting messages are given back at once, and handlers have the grace period.
//
// Every quarter of the visibility timeout, heartbeats extend it for each message that is neither deleted nor given
// back. So the timeout may be short: it is the delay after a crash, not a limit for handlers. SQS extends it for up to
// 12 hours after a receive.
//
// When a process has lost a message and its handler still runs, SQS may deliver the message to that process again. The
// process then gives the message back, hidden for about half a visibility timeout, so that another process can handle
// it. Each time this happens again, the message is hidden for half a timeout longer.
//
// A standard queue has no order, and OrderBy does not add one: it only makes one process handle the messages of a key
// one at a time. A FIFO queue is handled in order per message group, and a failure holds back its group only.
//
// Message.Attempt is SQS's count of receives, minus the receives that this Subscriber knows not to be failed attempts:
// a stop gave the message back, the process lost it, or it had to wait for the database, for example. The Subscriber
// does not know about receives by other processes that stopped or crashed.
//
// A redrive policy counts all receives, so it takes away messages that the Processor did not give up on. A
// maxReceiveCount that is not above the Processor's MaxAttempts is refused: each failing message would be moved away
// before it is parked. One below [MinReceives] draws a warning: a message that meets some stops, crashes or lost
// answers besides its failures would be moved away. No redrive policy is needed, because a Consumer parks the messages
// that it gives up on. A Processor that remembers keys for less time than the queue keeps messages is refused too.
//
// The client needs sqs:GetQueueAttributes, sqs:ReceiveMessage, sqs:ChangeMessageVisibility and sqs:DeleteMessage on the
// queue, and sqs:GetQueueUrl when SubscriberConfig.Queue is a name.
//
// # Sending
//
// A message counts as published when SQS has listed it as successful. A message that is not listed by the end of the
// call is an error, and will be published again; then it may arrive twice, with the same ID and sequence number in its
// attributes.
//
// A FIFO queue, whose name ends in .fifo, gets a message's OrderingKey as its MessageGroupId. Its
// MessageDeduplicationId is made of its ID, its sequence number and the time when it was enqueued: the same for a
// repeat, and another one for another message with the same ID. Both are a hash if SQS does not accept them as they
// are. So first occurrences keep the order of their key, and SQS drops a repeat within five minutes. A later repeat,
// from a relay that was away for long, arrives: receivers need their Consumer. A standard queue promises no order.
// DelaySeconds is not used: a message that is not due yet waits in the outbox.
//
// SQS refuses some characters, more than ten attributes, and an empty body. Messages with these are encoded: attribute
// txonce-encoding says that the body is base64, txonce-headers holds as JSON the headers that have no attribute, and
// txonce-key is the key. [ToMessage] decodes that, and so do the Subscriber and package awslambda.
//
// If the relay crashes after SQS has accepted a message and before the outbox has recorded that, the message is
// repeated. A crash before that loses nothing: the outbox has the message.
//
// While SQS is away each message's error is an *outbox.UnavailableError. The relay then gives the
// Publisher no messages for a while. A program that calls Publish without a relay must wait between its calls itself.
//
// # AWS Lambda
//
// Package awslambda handles the messages of a function whose event source is a queue.
package awssqs
