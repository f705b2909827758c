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
// A message counts as published when SQS has listed it as successful. A message that is not listed by the end of the call is an error, and
// will be published again; it may be there twice then, with the same ID and sequence number in its attributes.
//
// A FIFO queue, whose name ends in .fifo, gets a message's Key as its MessageGroupId and its ID as its MessageDeduplicationId, both
// as a hash if SQS does not accept them as they are. So first occurrences keep the order of their key, and SQS drops a repeat within
// five minutes. A later repeat, from a relay that was away for long, arrives: receivers need their Consumer. A standard queue promises no
// order. DelaySeconds is not used: a message that is not due yet waits in the outbox.
//
// SQS accepts not all characters, at most ten attributes and no empty body. Other messages are encoded: attribute txonce-encoding says that
// the body is base64, txonce-headers holds as JSON the headers that have no attribute, and txonce-key is the key. [ToMessage] decodes that,
// and so do the Subscriber and the LambdaHandler.
//
// If the relay crashes after SQS has accepted a message and before the outbox has recorded that, the message is repeated. A crash before
// that loses nothing: the outbox has the message.
//
// While SQS is away each message's error is an *outbox.UnavailableError. The relay rests the Publisher; a program that calls Publish without
// a relay waits between its calls itself.
//
// # AWS Lambda
//
// [LambdaHandler] is for functions whose event source is a queue. Its event source mapping MUST have ReportBatchItemFailures among its
// FunctionResponseTypes: without it Lambda deletes the whole batch whatever the answer says. A function that is killed, runs out of
// time or panics has answered nothing: all its messages come again, and those that were committed are duplicates.
package awssqs
