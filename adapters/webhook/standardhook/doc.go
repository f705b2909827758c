// Package standardhook verifies webhooks of senders that follow the Standard Webhooks specification, such as all that
// use Svix.
//
// # Use
//
// Copy the endpoint's signing secret from the sender, and name the sender:
//
//	verifier, err := standardhook.New(standardhook.Config{
//		Sender:  "clerk",
//		Secrets: []string{os.Getenv("CLERK_WEBHOOK_SECRET")}, // whsec_…
//	})
//
// and give the Verifier to the receiver of package webhook. While the sender changes the secret, configure the old and
// the new one. A sender that signs with Ed25519 has a public key, whpk_…, for PublicKeys. Tests make signed requests
// with [Sign].
//
// # How it works
//
// The sender signs the event's ID, the time of the attempt and the body, in the headers webhook-id, webhook-timestamp
// and webhook-signature. Svix calls them svix-id, svix-timestamp and svix-signature. All three must be of one family.
// If there are headers of both families, both must be complete and agree.
//
// The signed bytes are the ID, a dot, the time, a dot, and the body. An ID with a dot is refused, because the same
// bytes could be read as another ID with another time. A signature v1 is an HMAC-SHA256 with a secret, and v1a is an
// Ed25519 signature. Other versions are ignored. A delivery needs one signature of one configured key.
//
// The signed time must be within five minutes of the time of receipt, in both directions. It is the time of the attempt
// and not of the event, so it is not the Message's Time. The events of many senders have the time of their creation in
// the body: see Config.TimeField.
//
//	Message.ID      the header webhook-id, which is signed and the same in each delivery
//	Message.Tenant  Config.Sender, and Config.Endpoint if there is one: "clerk", "clerk/eu"
//	Message.Topic   the body's member "type"; empty if the body is not a JSON object or has no type
//	Message.Time    Config.TimeField of the body; zero without a TimeField
//
// The fingerprint is that of the type. The rest of the body is not part of it, because a sender may write the same
// event in another way when it sends it again.
//
// # What a crash does
//
// A Verifier has no state, so a crash loses nothing. The sender repeats a delivery that was not answered, with the same
// ID, a new time and a new signature, for as long as its schedule lasts.
package standardhook
