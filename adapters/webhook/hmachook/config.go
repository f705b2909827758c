package hmachook

import (
	"time"

	"github.com/txonce/txonce/adapters/webhook"
	"github.com/txonce/txonce/internal/risks"
)

// Config describes a sender. A path such as "data.id" names a field of an object in the JSON body.
type Config struct {
	// Name is the sender's name, in lower case, such as "square". Keys depend on it: every event counts as new after it
	// was changed. Required.
	Name string

	// Secrets are the keys that deliveries may be signed with: while a secret is replaced, the old and the new one.
	// Each has 16 bytes or more, after it was decoded. Sign uses the first. Required, or PublicKeys.
	Secrets []string

	// PublicKeys are the keys of a sender that signs with a private key: while it is replaced, the old and the new one.
	// They are Ed25519 keys, or ECDSA keys on P-256 whose signatures are in ASN.1 form over the SHA-256. Each is a
	// SubjectPublicKeyInfo in PEM or base64, or the 32 bytes of an Ed25519 key in hexadecimal or base64.
	//
	// Defaults to none: the signatures are HMACs.
	PublicKeys []string

	// SecretEncoding is how Secrets are written.
	//
	// Defaults to Plain: the bytes of the string are the key.
	SecretEncoding Encoding

	// Hash is the hash function of the HMAC.
	//
	// Defaults to SHA256.
	Hash Hash

	// SignatureHeader is the header that has the signature. Required.
	SignatureHeader string

	// SignatureEncoding is how the signature is written: Hex or Base64. Required.
	SignatureEncoding Encoding

	// SignaturePrefix is the text before each signature, such as "sha256=".
	//
	// Defaults to nothing.
	SignaturePrefix string

	// SignatureElement is the name of the signatures in a header that has several elements, such as "h1" in
	// "ts=1;h1=ab;h1=cd". Other elements are ignored. ElementSeparator separates the elements, such as ";".
	//
	// Defaults to a header that is one signature.
	SignatureElement string
	ElementSeparator string

	// Signed is the text that is signed, with these parts in braces: {body}, {timestamp}, {header:Name} for the value
	// of a header, and {url} for webhook.Config.PublicURL with the path and query of the request. For example
	// "{timestamp}:{body}", or "{url}{body}".
	//
	// No bytes can be moved between the parts. With {url}, and if {timestamp} or a header is next to {body}, the body
	// must be a JSON object or array. The value of a header has up to 255 visible ASCII characters, without braces,
	// brackets, and the character of the text beside it: without "." in "{header:X-Id}.{body}". A header must not touch
	// another header, {url}, or a {timestamp}, except in "{header:Name}{timestamp}{body}" with the TimestampFormat
	// RFC3339.
	//
	// Defaults to "{body}".
	Signed string

	// TimestampHeader, TimestampElement or TimestampPath is where the time of the delivery is: a header, an element of
	// the signature's header, or a field of the body. The first two must be a part of Signed.
	//
	// Defaults to a sender that signs no time of the delivery.
	TimestampHeader  string
	TimestampElement string
	TimestampPath    string

	// TimestampFormat is how the timestamp is written.
	//
	// Defaults to UnixSeconds.
	TimestampFormat TimeFormat

	// Tolerance is how far the timestamp may be from this machine's clock, in both directions. It is one hour at most.
	//
	// Defaults to 5 minutes.
	Tolerance time.Duration

	// ItemsPath is the array whose items are the events, for a sender of batches. "." is a body that is an array.
	// IDPaths, TopicPath, ScopePath, CreatedPath and FingerprintPaths then begin at the item, which becomes the
	// Payload.
	//
	// Defaults to a body that is one event.
	ItemsPath string

	// IDPaths are the fields that identify an event: the same in each delivery of an event, and different for different
	// events. Several values are joined with colons. A string that is JSON itself, such as "1" or "true", keeps its
	// quotes in Message.ID, so that it differs from the number 1 and from true. Required, or IDHeader.
	IDPaths []string

	// IDHeader is a header with the event's id, for senders that put it nowhere else. If Signed names it, Message.ID is
	// the id. Otherwise it is not signed, see the package's documentation, and Message.ID is the id, a colon and the
	// topic.
	//
	// Defaults to nothing.
	IDHeader string

	// Topic, TopicPath or TopicHeader is the event's type: a fixed text, a field, or a header. A header that Signed
	// does not name must be accepted as RiskUnsignedTopic. It is better to use an endpoint for each type, and Topic.
	//
	// Defaults to Name.
	Topic       string
	TopicPath   string
	TopicHeader string

	// Scope is a fixed scope for ids, such as "live" or an account. ScopePath is a field with the scope, such as a
	// merchant's id, for senders whose ids are unique in it only. They become part of the Tenant.
	//
	// Defaults to no scope: ids are unique.
	Scope     string
	ScopePath string

	// CreatedPath is when the event was created, the same in each delivery, and CreatedFormat is how it is written. It
	// becomes Message.Time. Without it, a delivery that comes after its key was forgotten counts as new.
	//
	// Defaults to unknown. CreatedFormat defaults to RFC3339.
	CreatedPath   string
	CreatedFormat TimeFormat

	// FingerprintPaths are fields that are the same in each delivery of an event. A delivery with a known id whose
	// fields differ is parked as a mismatch, not dropped as a duplicate. A field that is missing counts as null.
	//
	// Defaults to none: a known id is a duplicate. With an IDHeader that is not signed it defaults to the whole body.
	FingerprintPaths []string

	// Horizon is how long after an event its sender may deliver it again, also by hand. The Processor's window must be
	// at least as long. It may be shorter than the default only if a timestamp or CreatedPath is signed, so that a
	// captured delivery cannot be repeated after its key was forgotten.
	//
	// Defaults to 400 days.
	Horizon time.Duration

	// GiveUpAfter is an age of events, by CreatedPath. When an event is older, each attempt may be the sender's last,
	// so the event is parked after one failure.
	//
	// Defaults to 0: events must be stored and forwarded.
	GiveUpAfter time.Duration

	// Deadline is how long the sender waits for a response.
	//
	// Defaults to 30 seconds.
	Deadline time.Duration

	// Reply is the response to accepted deliveries.
	//
	// Defaults to status 200 without a body.
	Reply webhook.Reply

	// Handshake is how the sender tests the endpoint, for a sender that expects an answer of its own to that.
	//
	// Defaults to none.
	Handshake Handshake

	// AcceptedRisks lists the risks that are accepted: RiskSHA1 or RiskUnsignedTopic.
	//
	// Defaults to none.
	AcceptedRisks []Risk
}

// Encoding is how bytes are written.
type Encoding uint8

// The encodings.
const (
	Plain Encoding = iota // as they are; for secrets only
	Hex
	Base64 // standard, with padding
)

// Hash is a hash function.
type Hash uint8

// The hash functions.
const (
	SHA256 Hash = iota
	SHA512
	SHA1 // only with RiskSHA1
)

// TimeFormat is how a time is written.
type TimeFormat uint8

// The formats of times.
const (
	DefaultFormat TimeFormat = iota
	UnixSeconds              // an integer
	UnixMillis               // an integer
	RFC3339                  // a string
)

// Risk names a setting that is refused because it is unsafe, unless AcceptedRisks contains it.
type Risk = risks.Risk

// The risks.
const (
	// RiskSHA1 accepts signatures with HMAC-SHA1.
	RiskSHA1 Risk = "RiskSHA1"

	// RiskUnsignedTopic accepts a type from a header that is not signed. Somebody can send a captured delivery with
	// another type, and the handler of that type gets its body. With IDHeader that is a new event. With IDPaths the
	// delivery that comes first counts: the other one is a duplicate, also if it has the right type.
	RiskUnsignedTopic Risk = "RiskUnsignedTopic"
)
