// Package oncecheck finds mistakes in txonce's handlers that tests of the handler do not see, because they show only
// after a crash, a rollback or a second delivery: a statement on the pool instead of the transaction, a key that
// differs between deliveries, an error of a statement that nobody reads.
//
// # Use
//
// Command oncevet runs its analyzers under go vet, and package golangci registers them as a plugin of golangci-lint.
// docs/oncevet.md shows both, and wrong and right code for each check.
//
// # How it works
//
// A function is a handler because of the type of the place where the program gives it to txonce: consumer.Handler,
// consumer.BatchHandler, httpidem.Handler, the argument of consumer.JSON, of pgxstore.Pipeline or of a Store's InTx.
// Functions that only look like a handler are no handlers, because they may run outside of txonce.
//
// One analyzer, facts, does the work. It builds the package in SSA form and writes a Summary of each function: its
// effects, each with the origin of the value that it acts on, in terms of the function's parameters. A call takes over
// the effects of the function that it calls. Summaries are facts, so they cross packages. In a handler, the parameters
// have a meaning: one is the transaction, and its receiver and its captured variables existed before the transaction.
// A statement is outside if all that its value comes from existed before the transaction and nothing of the
// transaction goes into the call. A value whose origin is not known is no reason for a report.
package oncecheck
