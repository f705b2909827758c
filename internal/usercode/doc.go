// Package usercode is the one place where txonce calls code that its user wrote. Run calls a function on a goroutine of
// its own, and says how the call ended if it did not return: by a panic, or by runtime.Goexit, as FailNow of a test
// does. Error makes an error safe where it enters. Logger does the same for a slog.Handler. No other package of the
// library recovers a panic of the user's code.
//
//	what of the user's is called                          when it panics or ends its goroutine
//
//	consumer.Config: Handle, HandleBatch                  the message is tried again and parked at last, with cause panic or exhausted
//	consumer.Config: Key, Tenant                          the message is parked with cause no_key
//	consumer.Config: Fingerprint; Message.Malformed       the message is parked with cause undecodable
//	consumer.Config: Backoff                              logged; the default Backoff applies
//	consumer.Replay: Repair                               the letter stays; Replay returns the error
//	consumer.Trace, SourceTrace, relay.Trace, SweepTrace  logged once a minute; the work goes on as without the hook
//	webhook.Trace, httpidem.Trace                         logged once a minute; the response is as without the hook
//	Logger of every Config                                the line goes to stderr, one in a second
//	errors that these functions return, and what they     the text says which method; the error counts as any other, and a typed nil
//	wrap: Error, Unwrap, Is, As; typed nil pointers       pointer is not what its type says
//	values of a panic: Error, String, Format              the text says that the value cannot be printed
//	consumer.Processor of a Subscriber or Receiver        every message of the call comes again
//	outbox.Publisher: Publish; a wrong number of errors   the messages are published one by one; the one at fault is counted and parked at last
//	outbox.Publisher: Atomic, Ordered                     relay.New returns an error
//	relay.Config: HeaderFormat                            the message is counted, and parked at last
//	relay.Config: Backoff                                 logged; the default Backoff applies
//	dedup.SweeperConfig: ConfirmClock, OnAlarm            logged; the clock is not confirmed
//	pgxstore: Pipeline's function, callbacks, the rows    the handler has failed with it
//	of CopyFrom
//	awssqs: OrderBy; watermilltx: Amend                   the message is parked with cause undecodable
//	kafka: sarama's Partitioner; rabbitmq: Route;         the message is counted, and parked at last
//	watermilltx: UUID, Classify, watermill's Publisher
//	webhook: Verifier and the functions of its Config,    500 or 503; the sender delivers again
//	Start, the HTTP client
//	applehook: BackfillConfig.Refused                     Backfill returns the error
//	httpidem: Principal, KeyTime, Fingerprint, Seal,      the request is answered as if the function had returned an error
//	Open
//	httpidem: the Handler                                 ROLLBACK; the panic reaches the layers outside, as in net/http
//
// What Go cannot contain: a stack overflow, a map that two goroutines write, os.Exit, a method that never returns, and
// a panic on a goroutine that the user's code has started.
package usercode
