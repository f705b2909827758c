// Package applehook verifies App Store Server Notifications, version 2, and fetches those that were missed.
//
// # Use
//
// A [Verifier] belongs in a webhook receiver, which passes each notification to a consumer once:
//
//	verifier, err := applehook.New(applehook.Config{
//		BundleID: "com.example.app", AppAppleID: 1234567890, Environment: applehook.Production,
//	})
//	…
//	handler, err := webhook.New(webhook.Config{Verifier: verifier, …})
//
// The consumer's Key is consumer.MessageID, and its Window is at least [webhook.Source].Horizon: 181 days, or 31 in the
// sandbox. Its handler calls [Decode]:
//
//	n, err := applehook.Decode(msg)
//	if err != nil {
//		return err
//	}
//	switch n.Type {
//	case "DID_RENEW":
//		… n.Transaction.OriginalTransactionID …
//	}
//
// Unknown types and subtypes reach the handler, because Apple adds some from time to time. Notifications of type TEST
// do not. Apple does not keep the order of notifications: compare signed dates, or ask the App Store Server API for the
// state, before a handler replaces what an earlier one wrote.
//
// A [Backfill] reads Apple's history of notifications and passes what was missed to the same consumer. Apple keeps 180
// days, and 30 days in the sandbox. Run it next to the receiver, because Apple gives up after five retries, and in the
// sandbox after the first attempt.
//
// # How it works
//
// A notification is a JSON Web Signature with three certificates. The Verifier accepts it if
//
//   - its algorithm is ES256, and the leaf certificate's key made the signature,
//   - the certificates lead to a root of Config.Roots, in three steps, at the signed time,
//   - leaf and intermediate have the extensions that mark the certificates of the App Store,
//   - it is for the configured bundle, app and environment,
//   - all of this is also true for the transaction and the renewal information in it, which have signatures of their
//     own.
//
// The root is pinned: the certificate of Apple Root CA - G3 is part of this package. Nothing is fetched, except with
// Config.OCSP.
//
// The message's ID is the notificationUUID, and its Tenant is "apple", the environment and the bundle. Its Time is the
// signed date. Its payload is JSON with what Apple signed:
//
//	{"applehook": 1, "notification": {…}, "transaction": {…}, "renewal": {…}}
//
// so that dead letters can be read, and a message from the database needs no second verification. Its OrderingKey is
// the original transaction's ID, so that the notifications of one subscription are handled one after the other.
//
// # What a crash does
//
// A Verifier keeps only verified certificates and answers of OCSP responders, in memory. When all notifications up to a
// time are handled, a Backfill saves that time. After a crash it begins again there: what it passes to the consumer
// again is a duplicate, and does nothing. A notification that was parked is not a duplicate: its handler runs again in
// each pass that goes back before it, and each failure adds 1 to the Times of its dead letter.
package applehook
