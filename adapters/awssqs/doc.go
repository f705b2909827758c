// Package awssqs receives from Amazon SQS and sends to it, on aws-sdk-go-v2.
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
// the key. [ToMessage] undoes that, and so do the Subscriber and the LambdaHandler.
//
// A crash of the relay after SQS has taken a message and before the outbox has noted it repeats the message. A crash before that loses
// nothing: the outbox has it.
//
// # AWS Lambda
//
// [LambdaHandler] is for functions whose event source is a queue. Its event source mapping MUST have ReportBatchItemFailures among its
// FunctionResponseTypes: without it Lambda deletes the whole batch whatever the answer says. A function that is killed, runs out of
// time or panics has answered nothing: all its messages come again, and those that were committed are duplicates.
package awssqs
