// Package calls calls other systems' APIs for handlers, so that a call takes effect once: a charge, a refund, a
// shipment.
//
// A handler that calls an API in its transaction calls it again when the transaction rolls back, and a handler that
// calls it after COMMIT may die before. So the handler enqueues the call in its transaction, as an outbox message, and a
// relay makes the call:
//
//	err := charges.Enqueue(ctx, tx, calls.Request{OrderingKey: order.ID, Payload: body}) // in the handler
//	outgoing, err := relay.New(relay.Config{Queue: store, Publishers: map[string]outbox.Publisher{"stripe-charge": charges}})
//
// [Config.Do] makes the call with [Call.IdempotencyKey], which is the same in each try. [Config.Done] records the
// result, once, in the transaction that settles the call.
//
// # What is promised
//
// A call takes effect once, through crashes, stalls, lost answers and a database that went back, where the other system
// remembers idempotency keys for [Config.Keeps], or can be asked: [Config.Find]. Where neither can answer, the call is
// parked in doubt, and a person decides (txonce outbox answer). It is never guessed. No call is lost: it is settled, or
// parked with its cause.
//
// # How it works
//
// Before each try a record is committed: when the first and the latest of the tries began whose answers are not known,
// and when the latest has ended, all by the database's clock. Each publication of the message decides by that record:
//
//	the call is settled                                    nothing is called
//	the other system still remembers the key               Do
//	there are neither keys nor Find, no try is recorded    Do
//	otherwise, with Find                                   wait until Settles after the end of the latest try, then
//	                                                       Find: it has happened: Done; it has not: Do
//	otherwise                                              parked in doubt at once
//
// The other system remembers the key until Keeps after the message was enqueued. After that, a missing record does not
// prove that there was no try, because the database may have gone back since (failover, restore). Without keys, it
// proves that for 15 days; with Find it never does, because a handler that runs again after a failover enqueues the call
// anew.
//
// Without Find, waiting would not help: only a person can find out. The error of a parked call has the time until which
// a request may still be under way. Only after that time the answer that it has not happened is safe.
//
// Then one transaction claims the call's ID, runs Done, and deletes the record.
//
// # What a crash does
//
//	before the record of the try       the next relay tries
//	after it, before or during Do      the try is unanswered: the table above
//	after Do, before Done's commit     the same: the other system knows the key, or Find finds the call
//	after Done's commit                the call is settled; its message is published again, which calls nothing
//
// A process that was frozen within Do may go on when another one has taken over. Its request ends with ctx, after
// Config.Timeout, so pass ctx to the request. Config.Settles is the time that a request may still be under way then.
package calls
