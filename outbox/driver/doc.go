// Package driver is for authors of an outbox: the Queue that a relay reads, its Sessions, and what an implementation of outbox.Writer and
// outbox.Operations needs. Users of txonce need none of it, as users of database/sql do not need database/sql/driver.
//
// Package outbox/outboxtest has the suite that a store must pass.
package driver
