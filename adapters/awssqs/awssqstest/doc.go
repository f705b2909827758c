// Package awssqstest is an in-memory Amazon SQS for tests. A [Server] has the methods of *sqs.Client, so it can replace
// a client in code that takes an interface: it is an awssqs.API. It also serves code that creates its own queues.
//
//	server := awssqstest.NewServer(awssqstest.Config{})
//	_, err := server.CreateQueue(ctx, &sqs.CreateQueueInput{QueueName: aws.String("orders")})
//
// It has standard and FIFO queues, visibility timeouts, receive counts, receipt handles that become stale, long
// polling, delays, retention, redrive policies, deduplication, message groups, and the limits of SQS. It uses the clock
// of package time, so in a testing/synctest bubble a visibility timeout of twelve hours takes no time; create the
// Server inside the bubble. It starts no goroutine and needs no closing.
//
// # Faults
//
// [Config].Fault decides on each call. It can be slow, fail before or after it has its effect, and each entry of a
// batch can fail, with or without its effect, or be reported as successful without effect. [Server.Down] cuts
// connections until [Server.Up]. [Server.Pause] leaves every call without an answer. [Server.Deny] refuses operations
// like a missing permission.
//
// # Choices among SQS's behaviours
//
// Where AWS documents several behaviours, the Server shows the one that is hardest on clients:
//
//   - A receipt handle is stale once the message was received again. On a standard queue DeleteMessage with a stale
//     handle succeeds and deletes nothing. On a FIFO queue it fails, even if only the visibility timeout has passed.
//   - ChangeMessageVisibility needs the newest handle and a message in flight; otherwise it fails with
//     MessageNotInflight. It cannot extend the total time in flight beyond 12 hours.
//   - Message and system attributes are returned only by a receive that requests them.
//   - A receive of a FIFO queue may return several messages of one group. Then no other message of that group is
//     returned until all of these are deleted or visible again.
//   - A message whose receive count would exceed maxReceiveCount goes to the dead-letter queue instead of being
//     received. On a standard queue it keeps its age there.
//   - A message that exceeds the retention period is gone, even if it is in flight.
//   - With [Config].Shuffle a standard queue delivers in random order. Without it, it delivers in the order of sending,
//     as a small queue usually does.
//
// It does not have: empty answers of short polling, limits on messages in flight and on requests, encryption, policies,
// message move tasks. The tests of this package run a set of behaviours against the Server and against ElasticMQ, and
// name the differences.
package awssqstest
