// Package ops has what the operators of a service ask and request: is it ready, what is parked and why, what happened
// to one key, and please process these dead letters again. A command line and a dashboard are made of it.
//
// # Use
//
// A store that txonce provides returns its part with its method Operator:
//
//	status, err := store.Operator().Status(ctx)
//	about, err := ops.Explain(ctx, store.Operator(), dedup.Key{Consumer: "billing", ID: "order-42:paid"}, ops.ExplainOptions{})
//
// [ExplainOutbox] finds out what has become of the outbox messages of an explained key, and [PlanReplay] what a replay
// would do.
//
// Dead letters are processed again by the workers, because only they have the handlers and their secrets. An operator
// requests it, and consumer.Consumer.RunReplays of any worker carries it out:
//
//	action, err := store.Operator().Request(ctx, ops.Request{Kind: ops.Replay, Filter: consumer.DeadLetterFilter{Consumer: "billing"}, Who: "ann", Reason: "INC-17", Expect: -1})
//
// [Health] serves /livez and /readyz of a worker. [Recorder] writes what its consumers do to the database, for a
// dashboard's rates.
//
// # How it works
//
// Everything that an operator changes is a row of operator_actions, written in the transaction of the change: who,
// what, why and how often. A request to replay marks the dead letters with its ID in one transaction. Workers then
// claim, run and settle each letter in a transaction of its own, which also writes a row of operator_results; its
// primary key (action, letter) makes a second run impossible.
//
// # What a crash does
//
// A request is written with all its marks, or not at all. A worker that ends leaves its letter marked, and another one
// takes it. A letter whose handler fails is no longer marked: it is a dead letter as before, and its row of
// operator_results says why.
package ops
