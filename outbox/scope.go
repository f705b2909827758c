package outbox

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"sync"
)

// ErrNoID says that an ID that stays the same on re-execution cannot be derived here, so none is guessed. State Message.ID.
var ErrNoID = errors.New("outbox: message without ID")

type scopeKey struct{}

var errTwoGoroutines = errors.New("two goroutines enqueue in one handler, and their order differs the next time; state one")

// scope counts the messages of one execution of one handler.
type scope struct {
	seed string

	mu        sync.Mutex
	next      map[string]int // per topic
	opened    uintptr        // the goroutine that runs the handler, which lives until end is called; 0: not known
	byOpener  bool           // it has enqueued
	goroutine uint64         // another one has; 0: none
	ended     bool
}

// WithScope returns a context in which messages without ID get one derived from seed, topic and an ordinal, and a function
// that ends the scope. A consumer opens one for each message and attempt, with the message's key as seed.
// An empty seed closes an outer scope off: in the context that is returned every message needs its own ID.
//
// The ordinal is the same on re-execution only while one goroutine enqueues. A second goroutine is refused.
func WithScope(ctx context.Context, seed string) (scoped context.Context, end func()) {
	if seed == "" {
		return context.WithValue(ctx, scopeKey{}, (*scope)(nil)), func() {}
	}
	s := &scope{seed: seed, opened: currentG()}
	return context.WithValue(ctx, scopeKey{}, s), s.end
}

// JoinScope returns ctx with the scope of another context, where counting goes on.
func JoinScope(ctx, other context.Context) context.Context {
	return context.WithValue(ctx, scopeKey{}, other.Value(scopeKey{}))
}

func (s *scope) end() {
	s.mu.Lock()
	s.ended = true
	s.mu.Unlock()
}

// AssignIDs fills in missing IDs, all or, with an ErrNoID, none.
func AssignIDs(ctx context.Context, msgs []Message) error {
	first := -1
	for i := range msgs {
		if msgs[i].ID == "" {
			first = i
			break
		}
	}
	if first < 0 {
		return nil
	}
	s, _ := ctx.Value(scopeKey{}).(*scope)
	if s == nil {
		return fmt.Errorf("%w: topic %q: outside a handler's context, and in HandleBatch, state one", ErrNoID, msgs[first].Topic)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.usable(); err != nil {
		return fmt.Errorf("%w: topic %q: %w", ErrNoID, msgs[first].Topic, err)
	}
	if s.next == nil {
		s.next = make(map[string]int)
	}
	for i := first; i < len(msgs); i++ {
		if m := &msgs[i]; m.ID == "" {
			m.ID = derive(s.seed, m.Topic, s.next[m.Topic])
			s.next[m.Topic]++
		}
	}
	return nil
}

// usable reports whether the next ordinal would be the same in another execution.
func (s *scope) usable() error {
	if s.ended {
		return errors.New("the handler of this context has returned; state one")
	}
	switch mine := s.opened != 0 && s.opened == currentG(); {
	case mine && s.goroutine == 0:
		s.byOpener = true
		return nil
	case mine || s.byOpener:
		return errTwoGoroutines
	}
	id := goroutineID()
	if s.goroutine == 0 {
		s.goroutine = id
	}
	if s.goroutine != id {
		return errTwoGoroutines
	}
	return nil
}

// derive makes a UUID (version 8) of what is the same in each execution.
func derive(seed, topic string, ordinal int) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%q %q %d", seed, topic, ordinal))
	sum[6] = sum[6]&0x0f | 0x80
	sum[8] = sum[8]&0x3f | 0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", sum[0:4], sum[4:6], sum[6:8], sum[8:10], sum[10:16])
}
