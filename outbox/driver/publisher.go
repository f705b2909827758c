package driver

import (
	"errors"

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

// ErrNotTried says that a message was not published because of another message of its call. No attempt is counted.
var ErrNotTried = errors.New("outbox: not published because of another message of the call")
