package outbox

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/txonce/txonce/internal/outgoing"
)

// ErrNoID says that a message has no ID, and that no ID can be derived that stays the same when the handler runs again. Set
// Message.ID.
var ErrNoID = errors.New("outbox: message without ID")

type scopeKey struct{}

// scope counts the messages of one execution of one handler.
type scope struct {
	seed string

	mu         sync.Mutex
	next       map[string]int // ordinal, by topic
	busy       bool           // a call of Enqueue is under way
	overlapped bool           // two calls were under way at once
	ended      bool
}

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
	if seed == "" {
		return context.WithValue(ctx, scopeKey{}, (*scope)(nil)), func() {}
	}
	s := &scope{seed: seed}
	return context.WithValue(ctx, scopeKey{}, s), s.end
}

// JoinScope returns ctx with the scope of other, whose ordinals continue. Without a scope in other, every message needs its own ID.
func JoinScope(ctx, other context.Context) context.Context {
	return context.WithValue(ctx, scopeKey{}, other.Value(scopeKey{}))
}

func (s *scope) end() {
	s.mu.Lock()
	s.ended = true
	s.mu.Unlock()
}

// AssignIDs fills in all missing IDs, or returns an ErrNoID and fills in none.
func AssignIDs(ctx context.Context, msgs []Message) error {
	done, err := assignIDs(ctx, msgs)
	if err != nil {
		return err
	}
	done()
	return nil
}

// assignIDs is AssignIDs. When it has derived an ID, the scope refuses to derive others until done is called.
func assignIDs(ctx context.Context, msgs []Message) (done func(), err error) {
	first := -1
	for i := range msgs {
		if msgs[i].ID == "" {
			first = i
			break
		}
	}
	if first < 0 {
		return func() {}, nil
	}
	s, _ := ctx.Value(scopeKey{}).(*scope)
	if s == nil {
		return nil, fmt.Errorf("%w: topic %q: set Message.ID outside a handler's context, and in HandleBatch", ErrNoID, msgs[first].Topic)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.markBusy(); err != nil {
		return nil, fmt.Errorf("%w: topic %q: %w", ErrNoID, msgs[first].Topic, err)
	}
	if s.next == nil {
		s.next = make(map[string]int)
	}
	for i := first; i < len(msgs); i++ {
		if m := &msgs[i]; m.ID == "" {
			m.ID = outgoing.ID(s.seed, m.Topic, s.next[m.Topic])
			s.next[m.Topic]++
		}
	}
	return s.done, nil
}

// markBusy returns an error when another execution may derive other IDs. The caller holds mu.
func (s *scope) markBusy() error {
	s.overlapped = s.overlapped || s.busy
	switch {
	case s.ended:
		return errors.New("the handler of this context has returned; set Message.ID")
	case s.overlapped:
		return errors.New("two goroutines enqueue at once in one handler, and their order may be another one the next time; set Message.ID")
	}
	s.busy = true
	return nil
}

func (s *scope) done() {
	s.mu.Lock()
	s.busy = false
	s.mu.Unlock()
}
