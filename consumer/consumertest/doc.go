// Package consumertest tests handlers and broker adapters, and has a database in memory for tests of consumers.
//
// [TestHandler] tests your handler on the database that it will use. It delivers a message twice, crashes before and
// after COMMIT, and runs two copies at the same time. It finds handlers that write outside of their transaction, keys
// that differ between deliveries, and stores that claim in another transaction than the handler's. With
// HandlerTest.SameRow it also delivers messages of one row in one batch, and finds a statement that applies only one of
// them. With HandlerTest.Outgoing it finds a handler that enqueues other messages when it runs again.
//
// [Simulate] runs consumers and relays in virtual time, on a database and a broker in memory, with faults wherever a
// process meets the world. It finds what takes two processes, a crash at the wrong moment and a COMMIT that comes late.
// A seed and a number are a case, which can be run again.
//
// [TestSubscriber] is the suite that every broker adapter must pass. [TestBatches] tests a store with handlers that end
// their transaction.
//
// [NewStore] returns a store in memory that keeps claims and dead letters. A crash of the process loses them. Its
// transaction is a *deduptest.Tx, so it runs handlers that are generic in their transaction: such a handler records an
// effect with Tx.Add, and the test counts effects with Database().Count. A handler that takes a pgx.Tx needs
// PostgreSQL.
package consumertest
