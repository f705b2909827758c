// Package relay publishes the messages of an outbox to a broker.
//
// Run one Relay in every process of the service, beside whatever else it does:
//
//	r, err := relay.New(relay.Config{Queue: store, Publisher: publisher})
//	…
//	err = r.Run(ctx) // returns nil after ctx ended and the messages in flight are settled
//
// The relays that are alive share the outbox, and take over the messages of one that dies. A program that only wants to
// publish what is due now, such as a cron job, calls RunOnce.
//
// # How it works
//
// A key belongs to one of a fixed number of shards. A relay holds some shards for [Config.LeaseTTL], by the database's
// clock, and renews the hold at least three times within that time, by default every 5 seconds. It leases batches of
// due messages from the shards that it holds, publishes them, and settles each batch in one transaction:
//
//	             Renew                      a poll finds messages
//	opening ──────────────▶ holding shards ───────────────────────▶ publishing a batch
//	   ▲                      │        ▲                                │
//	   │     ErrLeaseLost, or │        └──────── Settle ────────────────┘
//	   │     the hold expired │
//	   └──────────────────────┘        ctx ended: finish the batches, Settle, give the shards back
//
// What Settle writes for a message:
//
//	confirmed by the broker                     sent: the message is done
//	failed, fewer than MaxAttempts              deferred by Backoff, with the later messages of its key; the attempt is counted
//	failed for the MaxAttempts-th time          parked
//	outbox.Permanent                            parked
//	outbox.TopicError                           deferred, not counted; the topic pauses: 1 s, doubling up to 1 min
//	outbox.UnavailableError                     pending or deferred, not counted; the publisher pauses
//	driver.DeferError                           deferred, not counted; others go on
//	not tried, or cut off when the hold ended   returned: due again at once
//	left over of a key with many messages       returned, and the key is held back for a tenth of a second
//
// A publisher pauses for UnavailableError.After. If that is 0, it pauses for Backoff of its failures in a row, at most
// 5 s. If the call took a second or longer, it pauses at least as long as the call took, but no more than 30 s.
//
// After its pause, a publisher gets one batch, and others when a message of it is confirmed. After its pause, a topic
// gets one message; when the broker confirms it, the others follow within a minute: all but the first of them wait
// longer than the pause.
//
// Messages of one key are published one per call: the next one leaves after the broker confirmed the one before. An
// [driver.AtomicPublisher] or an [driver.OrderedPublisher] gets all of them in one call.
//
// Two relays never publish messages of one shard at the same time, because a relay publishes only while no other relay
// can hold its shards. A call of Publish may run
//
//	from   its start, when the hold is still valid by this process's monotonic clock
//	until  min(start + PublishTimeout, Hold.Until - Margin)
//
// where Hold.Until is the time when the last successful Renew began, plus LeaseTTL. Margin is the time that the last
// messages have to arrive. Settle shows the fencing token of each shard, so a relay whose hold expired changes nothing.
//
// # What a crash does
//
// A relay that dies before Settle leaves its messages pending. Another relay takes the shards after LeaseTTL at the
// latest and publishes the messages. Those that the broker had received already are repeats: they carry the same ID and
// the same sequence number. No message is lost, and none is deleted before the broker confirmed it.
package relay
