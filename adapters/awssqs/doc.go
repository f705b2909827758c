// Package awssqs receives from Amazon SQS and sends to it, on aws-sdk-go-v2.
//
// # Receiving
//
// A [Subscriber] deletes a message when its Processor has handled it, which for a Consumer is after the commit. Until then SQS has it.
//
//   - A crash before the commit: no effect has happened. SQS delivers the message again once its visibility timeout has run out, so
//     a crash delays what the process held by that long.
//   - A crash after the commit and before the deletion: the message comes again, is a duplicate, and is deleted as one.
//   - A process that stalls for longer than the visibility timeout, or cannot reach SQS for that long, has lost what it held: the
//     handlers are cancelled, and nothing of theirs is deleted or put off. One that commits all the same makes the other
//     delivery a duplicate. On a FIFO queue SQS refuses late deletions as well.
//   - A stop: what waits is given back at once, and handlers have Grace.
//
// While a message is held its visibility timeout is renewed every quarter of it, so that it may be short: it bounds the delay of a
// crash, not the time of a handler. SQS lets nobody hold a message for more than 12 hours.
//
// A message that this process is still busy with may be delivered to it again, when it was lost. It goes back to SQS for
// about 1/2 of a visibility timeout, then 1, then 1 1/2 and so on, since another process may be able to handle it.
//
// A standard queue has no order, and OrderBy gives it none: it only keeps two messages of a key from running side by side in one
// process. A FIFO queue is handled in order per message group, and a failure holds back its group, not others.
//
// Message.Attempt is SQS's count of receives without those in which, as far as this Subscriber knows, no handler failed: deferrals,
// stops, lost holds. It does not know about the receives of processes that stopped or crashed.
//
// A redrive policy counts all receives, so it takes away messages that were never given up on. A maxReceiveCount that is not above
// the Processor's MaxAttempts is refused: each message that fails would be moved away before it is parked. One of less than
// [MinReceives] draws a warning: a message that meets some stops, crashes or lost answers besides its failures would be moved away. No redrive
// policy is needed, since a Consumer parks what it gives up on. A Processor that remembers keys for less time than the queue keeps messages is refused too.
//
// The client needs sqs:GetQueueAttributes, sqs:ReceiveMessage, sqs:ChangeMessageVisibility and sqs:DeleteMessage on the queue, and
// sqs:GetQueueUrl where SubscriberConfig.Queue is a name.
//
// # Sending
//
// A message counts as published when SQS has named it among what it has taken. What it has not named by the end of the call is an
// error, and will be published again; it may be there twice then, with the same ID and sequence number in its attributes.
//
// A FIFO queue, whose name ends in .fifo, gets a message's Key as its MessageGroupId and its ID as its MessageDeduplicationId, both
// as a hash where SQS does not take them as they are. So first occurrences keep the order of their key, and a repeat within five
// minutes is dropped by SQS. Later repeats, those of a relay that was away for long, arrive: receivers need their Consumer. A
// standard queue promises no order, whatever is sent to it. No DelaySeconds are used: a message that is not due yet waits in the outbox.
//
// SQS takes some characters, ten attributes and no empty body. What does not fit is written so that it does:
// attribute txonce-encoding tells of a body in base64, txonce-headers holds the headers that found no place as JSON, and txonce-key is
// the key. [ToMessage] undoes that, and so do the Subscriber and package awslambda.
//
// A crash of the relay after SQS has taken a message and before the outbox has noted it repeats the message. A crash before that loses
// nothing: the outbox has it.
//
// # AWS Lambda
//
// Package awslambda handles the messages of a function whose event source is a queue.
package awssqs
