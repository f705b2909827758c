package outgoing

import (
	"context"
	"errors"
	"fmt"
	"sync"
)

type scopeKey struct{}

// Scope counts the messages of one execution of one handler, and derives their IDs.
type Scope struct {
	seed string

	mu         sync.Mutex
	next       map[string]int // ordinal, by topic
	busy       bool           // a call of Enqueue is under way
	overlapped bool           // two calls were under way at once
	ended      bool
	labels     map[string]bool // of DownstreamKey
}

// WithScope returns a ctx with a scope, and a function that ends it. With an empty seed, the ctx has no scope.
func WithScope(ctx context.Context, seed string) (scoped context.Context, end func()) {
	if seed == "" {
		return context.WithValue(ctx, scopeKey{}, (*Scope)(nil)), func() {}
	}
	s := &Scope{seed: seed}
	return context.WithValue(ctx, scopeKey{}, s), s.end
}

// JoinScope returns ctx with the scope of other, whose ordinals continue; without one, if other has none.
func JoinScope(ctx, other context.Context) context.Context {
	return context.WithValue(ctx, scopeKey{}, other.Value(scopeKey{}))
}

// ScopeOf returns the scope of ctx; nil: it has none.
func ScopeOf(ctx context.Context) *Scope {
	s, _ := ctx.Value(scopeKey{}).(*Scope)
	return s
}

// Begin begins a call of Enqueue, which ends with End. It returns an error when another execution of the handler may
// derive other IDs.
func (s *Scope) Begin() error {
	s.mu.Lock()
	defer s.mu.Unlock()
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

// Next returns the ID of the next message without one to topic. Call it between Begin and End.
func (s *Scope) Next(topic string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.next == nil {
		s.next = make(map[string]int)
	}
	s.next[topic]++
	return ID(s.seed, topic, s.next[topic]-1)
}

// End ends a call of Enqueue.
func (s *Scope) End() {
	s.mu.Lock()
	s.busy = false
	s.mu.Unlock()
}

// DownstreamKey returns the idempotency key of a call that the handler makes itself. A label may be used once.
func (s *Scope) DownstreamKey(label string) (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.ended:
		return "", errors.New("the handler of this context has returned")
	case label == "":
		return "", errors.New("it needs a label, such as \"charge\"")
	case s.labels[label]:
		return "", fmt.Errorf("it was called before with the label %q: give each call a label of its own", label)
	case s.labels == nil:
		s.labels = make(map[string]bool)
	}
	s.labels[label] = true
	return DownstreamKey(s.seed, label), nil
}

func (s *Scope) end() {
	s.mu.Lock()
	s.ended = true
	s.mu.Unlock()
}
