package driver

import (
	"context"
	"errors"
	"time"

	"github.com/txonce/txonce/outbox"
)

// An outbox.Publisher may implement the following interfaces. Relays find them by type assertion. Without them a call
// gets at most one message of each key.

// AtomicPublisher publishes all messages of a call or none, in their order (a Kafka transaction). When Atomic returns
// true, Publish may get several messages of one key. After a call that failed, errs[i] of each message that was not at
// fault wraps ErrNotTried.
type AtomicPublisher interface {
	outbox.Publisher
	Atomic() bool
}

// OrderedPublisher publishes nothing of a key behind a failure: what arrives of a key is a prefix of its messages in
// the call, in their order, also when a part arrives after Publish has returned. When Ordered returns true, Publish may
// get several messages of one key. After the first error of a key, the errors of its later messages wrap ErrNotTried,
// unless they may have arrived.
//
// A publisher that sends the messages of a key at the same time, or several requests without waiting, cannot promise
// this: the broker may refuse one message, and take the next.
type OrderedPublisher interface {
	outbox.Publisher
	Ordered() bool
}

// LeasedPublisher gets each message as the outbox has it: with the time when it was enqueued, and with its attempts.
// package calls needs that. A Publisher that wraps one must have these methods too.
type LeasedPublisher interface {
	outbox.Publisher

	// PublishLeased is called in place of Publish, and has the same contract. Headers are those of
	// relay.Config.HeaderFormat.
	PublishLeased(ctx context.Context, msgs []Leased) (errs []error)

	// NeedsTime is how long a call must last so that it can publish at least one message. relay.New refuses a
	// PublishTimeout, or a LeaseTTL less its Margin, that is shorter.
	NeedsTime() time.Duration
}

// DeferError holds back one message, and with it the later ones of its key, for After. No attempt is counted, and
// neither the publisher nor the topic pauses.
type DeferError struct {
	After time.Duration
	Err   error
}

func (e *DeferError) Error() string { return e.Err.Error() }
func (e *DeferError) Unwrap() error { return e.Err }

// ErrNotTried says that a message was not published because of another message of its call. No attempt is counted.
var ErrNotTried = errors.New("outbox: not published because of another message of the call")
