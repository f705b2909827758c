// Package awslambda handles the messages that AWS Lambda takes from an SQS queue, in a function whose event source is
// that queue:
//
//	handler, err := awslambda.New(awslambda.Config{Processor: billing})
//	…
//	lambda.Start(handler.Handle) // of github.com/aws/aws-lambda-go/lambda, which this package does not import
//
// The event source mapping MUST have ReportBatchItemFailures among its FunctionResponseTypes. Without it Lambda does
// not read the answer, and DELETES every message of a batch even when some have failed: they are lost.
//
// # How it works
//
// Lambda receives messages, calls the function with a batch of them, and deletes those that the answer does not name.
// So a [Handler] names every message whose effects are not committed. The queue keeps these and delivers them again.
// Each delivery counts towards the maxReceiveCount of the queue's redrive policy, also when no handler failed, so set
// that to [awssqs.MinReceives] or more, and give the Processor a store that parks messages.
//
// On a FIFO queue the messages after a failed one of their group are not handled, and are named too. Messages of other
// groups are handled: to name those would only repeat them and raise their receive counts.
//
// The Processor's Trace reports what happens to messages. There is no driver.SourceTrace, because Lambda receives and
// deletes them.
//
// # After a crash
//
// A function that is killed, runs out of time or panics has not answered: all messages of its batch are delivered
// again. Those whose effects were committed are duplicates then, and have no second effect.
package awslambda
