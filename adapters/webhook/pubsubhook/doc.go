// Package pubsubhook receives the messages of Google Cloud Pub/Sub that a push subscription delivers, such as the
// Real-time Developer Notifications of Google Play.
//
// # Use
//
//	push, err := pubsubhook.New(pubsubhook.Config{
//		Subscriptions:   []string{"projects/my-project/subscriptions/play"},
//		Audiences:       []string{"https://hooks.example.com/play"},
//		ServiceAccounts: []string{"push@my-project.iam.gserviceaccount.com"},
//	})
//	…
//	receiver, err := webhook.New(webhook.Config{Verifier: push, Processor: purchases, …})
//
// Create the subscription with authentication (--push-auth-service-account and --push-auth-token-audience), and with an
// audience and a service account that nothing else uses. Leave payload unwrapping off.
//
// # How it works
//
// Pub/Sub sends an OpenID Connect token of Google in the header Authorization. A delivery is accepted if one of
// Google's keys signed the token with RS256, if issuer, audience, service account and times are right, and if the
// subscription in the body is configured.
//
// The token does not cover the body: whoever gets hold of a token can send any body until the token expires, which is
// after an hour. So the endpoint must be reachable over TLS only, and the header must not be logged. An alias as in
// other packages would not help, because such a person can change the body, too, and two messages may have the same
// content.
//
// A consumer.Message has these:
//
//   - ID is the message's messageId. Pub/Sub sends the same one with each attempt.
//   - Tenant is "pubsub/" and the subscription's name, and Topic is the subscription's name.
//   - Payload is the message's data. Headers are its attributes, with "pubsub-attribute-" before their names.
//     OrderingKey is its orderingKey.
//   - Time is the publishTime.
//   - Fingerprint is of data and attributes.
//
// Google's keys are fetched without redirects, once for all requests that need them, at most 64 KiB in 5 seconds, and
// kept for an hour. A token with an unknown key makes the Verifier fetch them again, at most once a minute. If they
// cannot be fetched, the delivery is answered with 503, and Pub/Sub repeats it.
//
// # What a crash does
//
// A Verifier has no state but the keys, which a new process fetches again. A crash before the transaction's COMMIT
// leaves the message without a 2xx, so Pub/Sub delivers it again with the same messageId.
package pubsubhook
