// Package driver is for authors of an outbox and of Publishers. An outbox is a [Queue] that a relay reads, with its
// Sessions; here is also what an implementation of outbox.Writer and outbox.Operations needs. A Publisher may promise
// more than outbox.Publisher asks for: see [AtomicPublisher] and [OrderedPublisher]. Users of txonce need none of it,
// as users of database/sql do not need database/sql/driver.
//
// Package outbox/outboxtest has the suites that a store and a Publisher must pass.
package driver
