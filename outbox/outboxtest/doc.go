// Package outboxtest has two test suites: one that every store of package outbox must pass, and one that every
// publisher must pass. It also has an outbox in memory, [Memory], and a [FakePublisher], for the tests of programs that
// use an outbox.
//
// # A store for another database
//
// [TestStore] takes a [Harness], which says how to make an empty outbox and how to run a transaction on it. The suite
// treats the store as a black box: it enqueues, leases, settles and calls Operations, and never reads a row. Time is
// the database's own: cases about leases that expire call Outbox.Age. Without an Age they use short leases, and wait
// until they observe the effect.
//
// # A publisher for another broker
//
// [TestPublisher] takes a [PublisherHarness]. The suite reads published messages back from the broker: a
// message that was confirmed must be there.
//
// # Features
//
// [Features] and [PublisherFeatures] say what a store or a broker cannot do. A case that cannot exist is listed in the
// output with its reason, and never skipped; a case whose hook is missing without a reason fails. Each sub-test is
// named after its rule, and each failure names the hazard of an outbox that would follow. broken_test.go shows that
// each case can fail, with stores and publishers that break one rule each.
//
// # Testing other things
//
// Memory and FakePublisher use the clock of package time, so that they follow the virtual time of testing/synctest.
package outboxtest
