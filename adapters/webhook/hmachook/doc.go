// Package hmachook receives webhooks of senders that sign with an HMAC, ECDSA or Ed25519 and have no package of their
// own here. A Config describes the sender: where the signature is, what is signed, and where the event's id is.
//
// # Use
//
// This is Square's scheme:
//
//	square, err := hmachook.New(hmachook.Config{
//		Name:              "square",
//		Secrets:           []string{os.Getenv("SQUARE_SIGNATURE_KEY")},
//		SignatureHeader:   "x-square-hmacsha256-signature",
//		SignatureEncoding: hmachook.Base64,
//		Signed:            "{url}{body}",
//		IDPaths:           []string{"event_id"},
//		TopicPath:         "type",
//		CreatedPath:       "created_at",
//	})
//	…
//	receiver, err := webhook.New(webhook.Config{Verifier: square, PublicURL: "https://hooks.example.com", …})
//
// Read the sender's documentation for each field, and try the Config with real deliveries: [Verifier.Sign] makes what
// the Config describes, and cannot show that the sender does the same. Senders that sign each item of a batch by itself
// need a Verifier of their own.
//
// # How it works
//
// A delivery is accepted if one of Secrets or PublicKeys made one of its signatures over the text that Config.Signed
// describes, and if its timestamp, where there is one, is at most Config.Tolerance before or after this machine's time.
// All pairs of secrets and signatures are compared, in constant time. A public key checks signatures of its own
// algorithm only. Only then is the body parsed.
//
// A consumer.Message holds only what is signed or configured: the ID, topic and creation time from paths in the body or
// from headers that Config.Signed names, and the body, or one item of it, as Payload. In the objects on such a path, a
// name that occurs twice is refused, also if it differs in case, because the handler could read the other one.
//
// Some senders put the id only in a header, which the signature does not cover. A captured delivery can be repeated
// with a new id, or with the id of another event. With such a Config.IDHeader the message has an alias, the SHA-256 of
// topic and body: a delivery with a new id and a known body is parked as known content. The alias is the fingerprint,
// too: a delivery with a known id and another body is parked as a mismatch. Two events with one id that differ in their
// topics are two messages.
//
// # What a crash does
//
// A Verifier has no state. A crash before the transaction's COMMIT leaves the delivery without a 2xx, and most senders
// repeat it.
package hmachook
