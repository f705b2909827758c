// Package awssqstest is Amazon SQS in memory, for tests. A [Server] has the methods of *sqs.Client, so it stands in for one wherever
// an interface of them is taken: it is an awssqs.API, and serves code that creates its queues too.
//
//	server := awssqstest.NewServer(awssqstest.Config{})
//	_, err := server.CreateQueue(ctx, &sqs.CreateQueueInput{QueueName: aws.String("orders")})
//
// It has standard and FIFO queues, visibility timeouts, receive counts, receipt handles that go stale, long polling that wakes when
// something can be received, delays, retention, redrive policies, deduplication, message groups, and the limits of SQS. Its clock
// is package time's, so in a bubble of testing/synctest a visibility timeout of twelve hours costs nothing; make the Server inside
// the bubble. It starts no goroutine and needs no closing.
//
// # Trouble
//
// [Config].Fault decides on each call: it can be slow, fail before or after it has taken effect, and each entry of a batch can be
// refused, be done and reported as failed, or be reported as done and not be. [Server.Down] cuts connections until [Server.Up],
// [Server.Pause] leaves every call without an answer, [Server.Deny] refuses operations as a missing permission does.
//
// # Where SQS leaves a choice
//
// The Server takes the one that is hardest on clients and that AWS documents:
//
//   - A receipt handle is worth nothing once the message was received again. On a standard queue DeleteMessage then succeeds and
//     deletes nothing. On a FIFO queue it fails, also when only the visibility timeout has passed.
//   - ChangeMessageVisibility needs the newest handle and a message that is in flight; else MessageNotInflight. It does not lengthen
//     the whole time in flight beyond 12 hours.
//   - Attributes, of the message and of the system, come only with a receive that asks for them.
//   - A receive of a FIFO queue may return several messages of one group; then none of that group comes until all of these are
//     deleted or visible again.
//   - A message whose receive count would exceed maxReceiveCount goes to the dead-letter queue instead of being received. On a
//     standard queue it keeps its age there.
//   - A message that is too old is gone, in flight or not.
//   - With [Config].Shuffle a standard queue has no order at all; without, it keeps that of sending, as a small queue mostly does.
//
// What it does not have: the empty answers of short polling, limits of messages in flight and of requests, encryption, policies,
// message move tasks. The tests of this package run a set of behaviours against the Server and against
// ElasticMQ, and say where the two differ.
package awssqstest
