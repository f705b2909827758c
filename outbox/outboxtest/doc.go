// Package outboxtest has the suites that every store and every publisher of package outbox must pass, an in-memory outbox,
// [Memory], that passes the one, and a [FakePublisher] that passes the other.
//
// # A store for another database
//
// [TestStore] takes a [Harness], which says how to make an empty outbox and how to run a transaction on it. The suite treats
// the store as a black box: it enqueues, leases, settles and asks Operations, and never looks at a row. Time is the
// database's own, so that cases about leases that run out use short ones and wait until something is seen to happen.
//
// # A publisher for another broker
//
// [TestPublisher] takes a [PublisherHarness]. What was published is read back from the broker: an answer is believed only
// when the message is there.
//
// # Features
//
// What a store or a broker cannot do is data, [Features] and [PublisherFeatures]. A case that cannot exist is listed in the
// output with its reason, and never skipped; one whose hook is missing without a reason fails. Each sub-test is named after
// the rule that it shows, and each failure says which of the known hazards of an outbox would strike. That each case can
// fail is shown by stores and publishers that break one rule each (broken_test.go).
//
// # Testing other things
//
// Memory and FakePublisher take their time from package time, so that package testing/synctest drives them.
package outboxtest
