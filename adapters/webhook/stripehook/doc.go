// Package stripehook verifies the webhooks that Stripe sends, and fetches the events whose webhooks were missed, so
// that each event has its effect once.
//
// # Use
//
// Make a [Verifier] with the signing secret of each endpoint, and give it to a receiver of package webhook:
//
//	verifier, err := stripehook.New(stripehook.Config{
//		Secrets: []stripehook.Secret{{Value: os.Getenv("STRIPE_WEBHOOK_SECRET"), Mode: stripehook.Live}},
//	})
//
// The consumer behind it has consumer.MessageID as its Key, and a Window of at least Verifier.Source().Horizon, which
// is 34 days: Stripe lists an event for 30 days. Its handler reads the event's type from Message.Topic, and the rest
// with [Parse]. Stripe delivers events in any order. So a handler must not write a copy from the payload over what it
// knows: it compares times, or fetches the object as it is now with [Client.Get].
//
// A [Backfill] next to the receiver fetches events that no webhook delivered, or whose effects are gone: those of an
// outage longer than 3 days, of a disabled endpoint, or of the time that is missing from a restored backup of the
// database. Tests of a receiver make deliveries with [Event.Body] and [Sign].
//
// # How it works
//
// A delivery is accepted if one of its v1 signatures is the HMAC-SHA256, with one of the secrets, of the header's time
// and the body, and if that time differs by at most Tolerance from the time of receipt. Only then is the body read.
// Several secrets may be configured and several signatures sent, because a secret that is rolled is used together with
// the new one for a while.
//
// The key of an event is its mode (live or test), its account, and its logical ID. The endpoint is no part of it, so an
// event that two endpoints get is handled once. The logical ID is the event's ID; for a thin event that names the
// snapshot event of the same change it is the snapshot's. So while a service moves to thin events, the two have one
// effect, and the handler must understand both: the one that arrives first runs. The fingerprint covers creation time,
// type and object ID, and not the payload, which differs between deliveries.
//
// A Backfill fetches the events from its checkpoint minus Overlap to now, and hands them to the same consumer, oldest
// first, with the same keys. The checkpoint is the creation time of the newest event that was handled, by Stripe's
// clock, and is saved in the database. List Events has no thin events. A change whose thin event was missed arrives as
// its snapshot event; thin events without a snapshot, such as those of meters and of v2 objects, are not fetched.
//
// # What a crash does
//
// A Verifier keeps nothing. A Backfill that crashes begins again at its checkpoint, which never passes an event that
// was not handled. What it handled after that are duplicates.
package stripehook
