package driver

import (
	"context"
	"fmt"
	"slices"

	"github.com/txonce/txonce/internal/outgoing"
	"github.com/txonce/txonce/outbox"
)

// Prepare validates msgs and returns a copy where each message has its ID. It is for implementations of outbox.Writer,
// which call done when Enqueue returns: until then the handler's scope refuses other calls, see WithScope. After an
// error done is nil. The copies share Payload and Headers with msgs: a Writer that keeps them after Enqueue must clone
// them.
func Prepare(ctx context.Context, msgs []outbox.Message) (ready []outbox.Message, done func(), err error) {
	ready = slices.Clone(msgs)
	for i := range ready {
		if err := ready[i].Validate(); err != nil {
			return nil, nil, err
		}
	}
	if done, err = assignIDs(ctx, ready); err != nil {
		return nil, nil, err
	}
	return ready, done, nil
}

// AssignIDs fills in all missing IDs, or returns an outbox.ErrNoID and fills in none.
func AssignIDs(ctx context.Context, msgs []outbox.Message) error {
	done, err := assignIDs(ctx, msgs)
	if err != nil {
		return err
	}
	done()
	return nil
}

// WithScope returns a context for Enqueue: a message without ID gets an ID that is derived from seed, its topic and an
// ordinal: how many messages without ID were enqueued to the topic before. end closes the scope. A consumer opens a
// scope for each attempt of each message, with the message's key as seed. With an empty seed every message needs its
// own ID.
//
// A derived ID is a UUID. If seed contains a time, as dedup.Key.Hash describes, the UUID is of version 7 and begins
// with that time, so that consumers of the message get keys in order too. Otherwise it is of version 8.
//
// A second execution derives the same IDs only when it enqueues in the same order. Where several goroutines of a
// handler enqueue, their order may be another one the next time, and two messages would swap their IDs: set Message.ID
// there. Two calls of Enqueue at the same time are refused with outbox.ErrNoID, and so are all later ones in this
// scope. Goroutines that happen to enqueue one after the other cannot be noticed.
func WithScope(ctx context.Context, seed string) (scoped context.Context, end func()) {
	return outgoing.WithScope(ctx, seed)
}

// JoinScope returns ctx with the outbox scope of other, whose ordinals continue. Without a scope in other, every
// message needs its own ID.
func JoinScope(ctx, other context.Context) context.Context { return outgoing.JoinScope(ctx, other) }

// assignIDs is AssignIDs. When it has derived an ID, the scope refuses to derive others until done is called.
func assignIDs(ctx context.Context, msgs []outbox.Message) (done func(), err error) {
	first := slices.IndexFunc(msgs, func(m outbox.Message) bool { return m.ID == "" })
	if first < 0 {
		return func() {}, nil
	}
	scope := outgoing.ScopeOf(ctx)
	if scope == nil {
		return nil, fmt.Errorf("%w: topic %q: set Message.ID outside a handler's context, and in HandleBatch",
			outbox.ErrNoID, msgs[first].Topic)
	}
	if err := scope.Begin(); err != nil {
		return nil, fmt.Errorf("%w: topic %q: %w", outbox.ErrNoID, msgs[first].Topic, err)
	}
	for i := first; i < len(msgs); i++ {
		if m := &msgs[i]; m.ID == "" {
			m.ID = scope.Next(m.Topic)
		}
	}
	return scope.End, nil
}
