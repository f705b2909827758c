package webhook

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/txonce/txonce/consumer"
)

// Delivery is one HTTP request of a sender. A Verifier must not change it.
type Delivery struct {
	Header http.Header
	Body   []byte // the bytes as they were received; never more than Config.MaxBody

	// URL is Config.PublicURL followed by the request's path and query: the URL as the sender knows it. It is empty
	// without a PublicURL. The Host header is never used, because the client chooses it.
	URL string

	// Time is when the request was received, by this machine's clock. Verifiers compare signed times with it.
	Time time.Time
}

// Event is one event of a Delivery. Its contents are signed or configured, except where the Verifier's documentation
// says otherwise.
type Event struct {
	// Message is what the Processor gets.
	//
	//   - ID is the event's business key without the parts that Tenant has. The same event has the same ID in each
	//     delivery and in a backfill.
	//   - Tenant is the scope of the ID: the mode, account, environment or app. It is Source.Name, or begins with it
	//     and a slash.
	//   - Topic is the event's type.
	//   - Time is when the event was created, if the sender signs that, and zero otherwise.
	//   - Fingerprint is the hash of content that is the same in each delivery and in a backfill. The zero Fingerprint
	//     matches all content.
	//   - Aliases are further keys for events whose ID is not signed. An event with a new ID and a known alias is
	//     parked as a known content.
	//   - Headers hold only what is signed or configured.
	Message consumer.Message

	// Drop says why the event must not reach the handler, such as "test notification". The event is logged, counted,
	// and acknowledged.
	Drop string

	// Reply replaces Source.Reply, for a sender that expects an answer to this event, such as Slack's url_verification.
	// It is used only if the event is dropped.
	Reply *Reply
}

// Verifier checks that a Delivery comes from its sender, and reads its events. It is safe for concurrent use.
type Verifier interface {
	// Verify returns the events of d, in order, and at least one. An error that Refuse made is answered with
	// Config.RefusalStatus, which is 400 by default, and the reason is counted and logged. Any other error means that
	// the delivery could not be checked, for example because a certificate could not be fetched: it is answered with
	// 503, so that the sender tries again. Verify must not return events together with an error.
	Verify(ctx context.Context, d *Delivery) ([]Event, error)

	// Source describes the sender. It is the same with each call.
	Source() Source
}

// Source describes a sender. Each Verifier has its own.
type Source struct {
	// Name is the sender's name, such as "stripe". It begins each Tenant.
	Name string

	// Horizon is how long after an event its sender may deliver it again, including by hand or in a backfill. The
	// Processor's window must be at least as long.
	Horizon time.Duration

	// Deadline is how long the sender waits for a response. The response comes a little earlier. 0 means 30 seconds.
	Deadline time.Duration

	// MaxBody is the default of Config.MaxBody, in bytes: the size of the sender's largest delivery. 0 means
	// DefaultMaxBody.
	MaxBody int64

	// GiveUpAfter is an age of events, by Message.Time. When an event is older, each attempt may be the sender's last,
	// so the event is parked after one failure. 0 means that the events have no signed time, so that their age is
	// unknown: such events must be stored and forwarded, see NewInbox.
	GiveUpAfter time.Duration

	// Reply is the response to accepted events. The zero value is 200 without a body.
	Reply Reply
}

// Reply is a response to a sender.
type Reply struct {
	Status      int // 0 means 200
	ContentType string
	Body        []byte
}

// Refusal says why a delivery is refused.
type Refusal string

// The reasons to refuse a delivery.
const (
	Unsigned     Refusal = "unsigned"      // the signature is missing, or its header cannot be read
	BadSignature Refusal = "bad-signature" // no configured secret or certificate made the signature
	BadTime      Refusal = "bad-time"      // the signed time is too old, or in the future
	Malformed    Refusal = "malformed"     // the signature is right, but the content cannot be read
	// the signature is right, but the event is for another app, environment or topic
	WrongApp Refusal = "wrong-app"
)

// Refuse returns an error that makes a Receiver refuse a delivery with Config.RefusalStatus. The text is logged and not
// sent: it must not contain secrets.
func Refuse(why Refusal, format string, args ...any) error {
	return &refusedError{why: why, err: fmt.Errorf(format, args...)}
}

// RefusalOf returns the reason that err was made with, or "" if it was not made by Refuse.
func RefusalOf(err error) Refusal {
	refused, ok := errors.AsType[*refusedError](err)
	switch {
	case !ok:
		return ""
	case refused.why == "":
		return Malformed // a refusal must not turn into a request to try again
	}
	return refused.why
}

type refusedError struct {
	why Refusal
	err error
}

func (e *refusedError) Error() string { return string(e.why) + ": " + e.err.Error() }

func (e *refusedError) Unwrap() error { return e.err }
