package outbox

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Publisher hands messages to a broker and waits for its confirmation. errs[i] is nil once the broker has CONFIRMED
// msgs[i]; nil errs: all are. Any other error leaves open whether the message arrived: it will be published again.
//
//   - A plain error counts against the message: it is tried again later, and parked after Config.MaxAttempts.
//   - A [*TopicError] is the topic's fault: the topic, queue or exchange is missing, or closed to this client. Nothing is counted,
//     and the relay holds back the messages of this Message.Topic until one of them, tried now and then, is confirmed.
//   - An error of [Permanent] parks it at once: it is too large, its topic's name is impossible.
//   - An [*UnavailableError] is the broker's fault: nothing is counted, and the relay rests the publisher.
//
// Publish returns by the deadline of ctx, which is Config.PublishTimeout away, or the end of the relay's lease less a margin.
// What is on its way then may still arrive: a repeat. A relay whose publisher does not return within LeaseTTL after that gives up its
// shards, and takes none until it does. An error that is the context's own counts only in the first case: a
// publisher that knows it has waited for the broker in vain says UnavailableError. The relay passes at most one message of a key per call, unless the publisher is an
// [AtomicPublisher], and may call Publish several times at once, for different keys.
type Publisher interface {
	Publish(ctx context.Context, msgs []Message) (errs []error)
}

// AtomicPublisher publishes the messages of one call all or none, in their order (a Kafka transaction). When Atomic
// returns true, Publish may get several messages of one key. Of a call that failed, errs[i] of the messages that were
// not at fault wraps ErrNotTried.
type AtomicPublisher interface {
	Publisher
	Atomic() bool
}

// ErrNotTried says that the message was not published because of another one of its call. Nothing is counted.
var ErrNotTried = errors.New("outbox: not published because of another message of the call")

// permanentError is refused for good.
type permanentError struct{ err error }

func (e *permanentError) Error() string { return e.err.Error() }
func (e *permanentError) Unwrap() error { return e.err }

// Permanent marks err as a refusal that no repetition changes. nil stays nil.
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

// TopicError says that the broker refuses every message of this Message.Topic, for now: the topic, queue or exchange is missing, or
// this client may not write to it. A name that can be no topic is [Permanent] instead.
type TopicError struct{ Err error }

func (e *TopicError) Error() string { return e.Err.Error() }
func (e *TopicError) Unwrap() error { return e.Err }

// UnavailableError says that the broker cannot be reached, or rests after it could not.
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
