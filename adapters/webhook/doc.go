// Package webhook receives webhooks so that each event is handled once, although its sender delivers it several times.
//
// A sender such as Stripe or GitHub delivers an event again when it did not get a 2xx response in time, also when the
// event was handled and only the response was lost. Anybody who has captured a delivery can send it, too. A [Receiver]
// is an http.Handler that checks who has sent a delivery, and hands its events to a consumer, whose transaction holds
// the claim of the event's key together with the effect.
//
// # Use
//
// Give [New] a verifier for the sender (its package is named after it: stripehook, githubhook, …) and a consumer:
//
//	billing, err := consumer.New(consumer.Config[pgx.Tx]{
//		Name: "billing", Store: store, Key: consumer.MessageID, Window: 40 * 24 * time.Hour,
//		Handle: webhook.ByTopic(map[string]consumer.Handler[pgx.Tx]{"invoice.paid": paid}),
//	})
//	…
//	receiver, err := webhook.New(webhook.Config{Verifier: verifier, Processor: billing})
//	…
//	err = receiver.Start(ctx) // before the server listens: finds a missing schema, for example
//	…
//	mux.Handle("/hooks/stripe", receiver)
//
// Run a dedup.Sweeper with the consumer's Store: it deletes expired keys. Mount the Receiver where nothing has read or
// changed the body: signatures cover its bytes. At the end of the program call http.Server.Shutdown, and then
// [Receiver.Shutdown], which waits for handlers that outlived their request.
//
// # Inline, or stored and forwarded
//
// With a consumer as the Processor, the handler runs while the sender waits (inline). That is simple, and suits
// handlers that take much less time than the sender waits, which is between 5 and 30 seconds.
//
// With an [Inbox] as the Processor, one transaction claims the event and adds it to an outbox; then the sender gets its
// answer. A relay forwards the event to a [Worker], which hands it to the consumer in this program, or to a broker:
//
//	inbox, err := webhook.NewInbox(webhook.InboxConfig[pgx.Tx]{Name: "billing", Store: store})
//	…
//	receiver, err := webhook.New(webhook.Config{Verifier: verifier, Processor: inbox})
//	…
//	worker, err := webhook.NewWorker(webhook.WorkerConfig{Processor: billing})
//	…
//	r, err := relay.New(relay.Config{Queue: store, Publishers: map[string]outbox.Publisher{inbox.Topic(): worker}})
//	…
//	err = r.Run(ctx)
//
// The Inbox claims events under the name of the consumer plus "/inbox". Use an Inbox for slow handlers, and for senders
// that sign no time (Source.GiveUpAfter is 0): [New] refuses to handle their events inline, because nobody knows which
// attempt is their last. A consumer that gets the events from a broker reads them as [HeaderID] shows.
//
// # How it works
//
// The response says what happened to the delivery:
//
//	handled now or before, parked, or dropped      Source.Reply: 200 without a body, unless the sender wants something else
//	a handler failed; the key is in flight;        503 with Retry-After, at most 10 minutes
//	the database is away; the receiver stops;
//	the sender's deadline is near; the Verifier
//	could not fetch a certificate
//	the Processor gave the event up and did not    500
//	keep it; a panic
//	not from the sender, or it cannot be read      400 (Config.RefusalStatus), the same for each reason; the log has the reason
//	no POST; compressed; too large; too slow       405, 415, 413, 408
//
// It is never 200 for an event that is neither committed, parked nor dropped, and never 3xx or 410, which some senders
// take for the end of the subscription. A refused delivery uses no database.
//
// Until an event is claimed, a client that hangs up ends the work of its delivery, and nothing has happened. From the
// claim on, the work goes on even if the client hangs up. When only a tenth of the sender's deadline is left and the
// work is not finished, the response is 503 and the work goes on: the next delivery finds the event in flight (503) or
// done (200). GitHub does not repeat a delivery by itself after a 503, and Twilio repeats one only after a failed
// connection: use an Inbox for them. If the handler were cancelled instead, one that needs a little longer than the
// sender waits would never finish.
//
// An event that fails is delivered again by its sender, with growing intervals, until the sender gives up. An event is
// parked at its first failure after it has reached the age Source.GiveUpAfter, also if its handler began earlier. It is
// parked before that age only if its handler returns consumer.Permanent or consumer.Config.MaxAttempts is 1. The
// Receiver counts no failures, because a sender's first attempts can follow each other within seconds, and an outage
// must not park events; a backfill and a Worker do count them. While the database is away, or consumer.Config.ParkLimit
// is spent, nothing can be parked either: when that outlasts the sender's retries, use the verifier's backfill.
//
// Some senders sign the body and not the header with the event's ID. Their verifiers also claim a hash of the body
// ([consumer.Message].Aliases). An event with a new ID and a known body is known content: it is parked with
// observe.CauseKnownContent and acknowledged, because it may also be a second event that looks the same. A person
// decides with consumer.Consumer.Replay.
//
// # What a crash does
//
// A crash before COMMIT leaves nothing, and the sender has no response: it delivers the event again, which runs. After
// a crash that follows COMMIT, the next delivery is a duplicate, and is answered with 200 without running the handler.
// An event in an Inbox is in the outbox from then on, and survives until the consumer has committed or parked it: the
// relay forwards it again after a crash, and the consumer's own claim makes a repeat harmless.
package webhook
