// Package consumertest is for tests of what surrounds a consumer.
//
// [TestHandler] shows of a handler of yours, on the database that it will run on, that its effects happen once: it
// delivers a message twice, crashes before and after the commit, and lets two copies run at the same time. It finds
// handlers that write outside of their transaction, keys that differ between deliveries, and stores that claim in another
// transaction than the handler's.
//
// [TestSubscriber] is the suite that every broker adapter must pass.
//
// [NewStore] is all that a consumer asks of a database, in memory, for tests that are about something else.
package consumertest
