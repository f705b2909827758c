package outbox

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Publisher sends messages to a broker and waits for the broker's confirmation. errs[i] is nil after the broker has
// CONFIRMED msgs[i]; nil errs: it has confirmed all. Any other error leaves open whether the message arrived: it will
// be published again.
//
//   - A plain error counts against the message: it is tried again later, and parked after relay.Config.MaxAttempts.
//   - A [*TopicError] says that the topic, queue or exchange is missing, or closed to this client. No attempt is
//     counted. The relay holds back the messages of this Message.Topic, tries one of them now and then, and goes on
//     when one is confirmed.
//   - An error that [Permanent] has marked parks the message at once: it is too large, or its topic's name is
//     impossible.
//   - An [*UnavailableError] says that the broker cannot be reached. No attempt is counted. When the broker has
//     confirmed no message of the call, the relay stops calling the publisher for a while, then tries one batch.
//
// Publish must return by the deadline of ctx, which is after relay.Config.PublishTimeout, or relay.Config.Margin before
// the relay's lease ends if that is earlier. Messages that were sent by then may still arrive, and are published again.
// A relay whose publisher does not return within LeaseTTL after the deadline gives up its shards, and takes none until
// the call returns. A context error of ctx counts against the message when PublishTimeout has passed, and not when the
// lease ended: a publisher that knows that the broker was away returns UnavailableError. A context error of a limit of
// the publisher's own counts, like any plain error.
//
// A call that panics, ends its goroutine, or returns another number of errors has no usable answers. The relay then
// publishes its messages once more, each in a call of its own, and those that still have no answer count as failed.
//
// The relay passes at most one message of each key per call, unless the publisher is a driver.AtomicPublisher or a
// driver.OrderedPublisher (outbox/driver), and may call Publish several times at once, for different keys.
type Publisher interface {
	Publish(ctx context.Context, msgs []Message) (errs []error)
}

// permanentError marks a refusal that a repetition does not change.
type permanentError struct{ err error }

func (e *permanentError) Error() string { return e.err.Error() }
func (e *permanentError) Unwrap() error { return e.err }

// Permanent marks err as a refusal that a repetition does not change. Permanent(nil) is nil.
func Permanent(err error) error {
	if err == nil {
		return nil
	}
	return &permanentError{err}
}

// IsPermanent reports whether err was marked with Permanent.
func IsPermanent(err error) bool {
	var p *permanentError
	return errors.As(err, &p)
}

// TopicError says that the broker refuses every message of this Message.Topic at the moment: the topic, queue or
// exchange is missing, or this client may not write to it. A name that no topic can have is [Permanent] instead.
type TopicError struct{ Err error }

func (e *TopicError) Error() string { return e.Err.Error() }
func (e *TopicError) Unwrap() error { return e.Err }

// UnavailableError says that the broker cannot be reached.
type UnavailableError struct {
	After time.Duration // when to try again; 0: the relay decides
	Err   error
}

func (e *UnavailableError) Error() string {
	if e.After > 0 {
		return fmt.Sprintf("outbox: broker unavailable, next try in %v: %v", e.After, e.Err)
	}
	return fmt.Sprintf("outbox: broker unavailable: %v", e.Err)
}

func (e *UnavailableError) Unwrap() error { return e.Err }
