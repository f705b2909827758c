package outbox

import (
	"context"
	"errors"

	"github.com/txonce/txonce/internal/outgoing"
)

// ErrNoID says that a message has no ID, and that no ID can be derived that stays the same when the handler runs again. Set
// Message.ID.
var ErrNoID = errors.New("outbox: message without ID")

// WithScope returns a context for Enqueue: a message without ID gets an ID that is derived from seed, its topic and an ordinal:
// how many messages without ID were enqueued to the topic before. end closes the scope. A consumer opens a scope for each attempt
// of each message, with the message's key as seed. With an empty seed every message needs its own ID.
//
// A derived ID is a UUID. If seed contains a time, as dedup.Key.Hash describes, the UUID is of version 7 and begins with that time, so that
// consumers of the message get keys in order too. Otherwise it is of version 8.
//
// A second execution derives the same IDs only when it enqueues in the same order. Where several goroutines of a handler enqueue,
// their order may be another one the next time, and two messages would swap their IDs: set Message.ID there. Two calls of
// Enqueue at the same time are refused with ErrNoID, and so are all later ones in this scope. Goroutines that happen to
// enqueue one after the other cannot be noticed.
func WithScope(ctx context.Context, seed string) (scoped context.Context, end func()) {
	return outgoing.WithScope(ctx, seed)
}
