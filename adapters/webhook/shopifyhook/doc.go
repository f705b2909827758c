// Package shopifyhook verifies webhooks of Shopify.
//
// # Use
//
// Let each subscription have an endpoint of its own, and configure its topic and the app's client secret:
//
//	verifier, err := shopifyhook.New(shopifyhook.Config{
//		Endpoint: "orders-paid",
//		Topic:    "orders/paid",
//		Secrets:  []string{os.Getenv("SHOPIFY_CLIENT_SECRET")},
//	})
//
// and give the Verifier to the receiver of package webhook, with a webhook.NewInbox as its Processor. While you rotate
// the client secret, configure the old and the new one: Shopify may use the old one for another hour. Tests make signed
// requests with [Sign].
//
// # How it works
//
// Shopify signs only the body, with HMAC-SHA256, in the header X-Shopify-Hmac-SHA256. The IDs, the topic and the shop
// are in headers that are NOT signed, and no time is signed at all. So somebody who has captured one delivery can send
// its body again with a new ID, at any time. This is why
//
//   - a second key is claimed for each event: the hash of endpoint, topic and body. A body that is known and has a new
//     ID is parked as known content. Nothing is lost: a person can replay it if Shopify really sent two equal bodies.
//     If you choose the fields of a subscription with include_fields, keep one that changes with each event, such as
//     updated_at.
//   - the Processor must remember keys for at least [Horizon], which is 400 days. A capture that is older runs again.
//   - each endpoint takes one topic, Config.Topic. An app has one secret for all its topics, and Shopify sends the same
//     body under several topics, such as orders/create and orders/paid. So a captured body can be sent once to each
//     other endpoint. If that does harm, the handler must ask Shopify for the current state of the order.
//   - the events have no known age, so Shopify's last attempt cannot be recognized: store and forward them, see
//     webhook.NewInbox. Shopify deletes a subscription after eight failed attempts in four hours.
//
// The ID is the header X-Shopify-Event-Id, and not X-Shopify-Webhook-Id. Both are the same in each attempt of one
// delivery. But several subscriptions for one topic deliver one event several times, each with its own
// X-Shopify-Webhook-Id. Shopify names X-Shopify-Event-Id as the one that tells duplicates. One action of a merchant can
// cause events of several topics, so the topic is part of the ID.
//
//	Message.ID       the topic, a colon, and the header X-Shopify-Event-Id
//	Message.Tenant   "shopify/" and Config.Endpoint
//	Message.Topic    Config.Topic, or the header X-Shopify-Topic with TrustTopicHeader
//	Message.Headers  X-Shopify-Shop-Domain with Config.Shop or TrustShopHeader, and otherwise nothing
//	Message.Time     zero: Shopify does not sign the time of an event
//
// # What a crash does
//
// A Verifier has no state. Shopify repeats a delivery that was not answered within five seconds, with the same IDs:
// eight times within four hours.
package shopifyhook
