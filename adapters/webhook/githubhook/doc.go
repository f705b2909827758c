// Package githubhook verifies webhooks of GitHub: those of repositories, organizations and GitHub Apps.
//
// # Use
//
// Create the webhook with a secret, for one event, and configure the same secret and event here:
//
//	verifier, err := githubhook.New(githubhook.Config{
//		Endpoint: "releases-hook",
//		Topic:    "release",
//		Secrets:  []string{os.Getenv("GITHUB_WEBHOOK_SECRET")},
//	})
//
// and give the Verifier to the receiver of package webhook, with a webhook.NewInbox as its Processor. Payloads of up to
// 25 MiB are accepted, as GitHub does not deliver larger ones. Tests make signed requests with [Sign].
//
// # How it works
//
// GitHub signs only the body, with HMAC-SHA256, in the header X-Hub-Signature-256. The older signature with SHA-1 is
// never accepted. The ID and the event's type are in headers that are NOT signed, and no time is signed at all. So
// somebody who has captured one delivery can send its body again with a new ID, at any time. This is why
//
//   - a second key is claimed for each event: the hash of endpoint, topic and body. A body that is known and has a new
//     ID is parked as known content. Nothing is lost: a person can replay it if GitHub really sent two equal bodies.
//   - the Processor must remember keys for at least [Horizon], which is 400 days. A capture that is older runs again.
//   - each endpoint takes one type of event, Config.Topic, because otherwise a captured body could be sent as an event
//     of another type. Give each endpoint a secret of its own, so that no delivery to one of them is accepted by
//     another.
//   - the events have no known age, so GitHub's last attempt cannot be recognized: store and forward them, see
//     webhook.NewInbox.
//
// The ID is the header X-GitHub-Delivery. GitHub uses one ID per event and not per delivery: several hooks and apps may
// get different bodies with the same ID. So Config.Endpoint is part of each key, and another body with a known ID is
// parked as a mismatch.
//
//	Message.ID       the header X-GitHub-Delivery
//	Message.Tenant   "github/" and Config.Endpoint
//	Message.Topic    Config.Topic, or the header X-GitHub-Event with TrustTopicHeader
//	Message.Payload  the JSON; a hook with the content type application/x-www-form-urlencoded is decoded
//	Message.Time     zero: GitHub does not sign the time of an event
//
// The ping that GitHub sends to a new hook is recognized by its signed body, and does not reach the handler.
//
// # What a crash does
//
// A Verifier has no state. GitHub does not send a failed delivery again by itself: a person, or a program that uses its
// API, can ask for a redelivery within three days. It has the same ID and the same body, so it is a duplicate if the
// first delivery was committed.
package githubhook
