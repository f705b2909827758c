package consumer

import (
	"context"
	"sync"

	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/internal/outgoing"
	"github.com/txonce/txonce/outbox/driver"
)

// Scope returns a ctx for enqueueing outbox messages on behalf of msg: those without an ID get one that is derived from
// msg, and that is the same when msg is handled again in another batch. A BatchHandler works for several messages, so
// it needs Scope or explicit IDs: call Scope with the ctx and one of the messages that it got. A Handler's ctx has such
// a scope already. Outside of a handler, Scope has no effect. It is safe for concurrent use.
func Scope(ctx context.Context, msg *Message) context.Context {
	s, _ := ctx.Value(scopesKey{}).(*scopes)
	if s == nil {
		none, _ := driver.WithScope(ctx, "")
		return none
	}
	return driver.JoinScope(ctx, s.of(msg))
}

type scopesKey struct{}

// scopes are the outbox scopes of the messages in one call of a BatchHandler.
type scopes struct {
	outer context.Context // has a scope that derives no IDs

	mu    sync.Mutex
	keys  map[*Message]dedup.Key
	open  map[*Message]context.Context
	ends  []func()
	ended bool
}

// withScopes returns the ctx for a BatchHandler that gets msgs, which were claimed under keys. end ends all scopes.
func withScopes(ctx context.Context, msgs []*Message, keys []dedup.Key) (scoped context.Context, end func()) {
	outer, _ := driver.WithScope(ctx, "") // hides the scope of a handler further out
	s := &scopes{outer: outer, keys: map[*Message]dedup.Key{}, open: map[*Message]context.Context{}}
	for i, msg := range msgs {
		s.keys[msg] = keys[i]
	}
	return context.WithValue(outer, scopesKey{}, s), s.end
}

func (s *scopes) of(msg *Message) context.Context {
	s.mu.Lock()
	defer s.mu.Unlock()
	if ctx, ok := s.open[msg]; ok {
		return ctx
	}
	key, ok := s.keys[msg]
	if !ok || s.ended { // msg is not in this batch, or the handler has returned
		return s.outer
	}
	ctx, end := driver.WithScope(s.outer, seed(key))
	s.open[msg], s.ends = ctx, append(s.ends, end)
	return ctx
}

func (s *scopes) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended = true
	for _, end := range s.ends {
		end()
	}
}

// seed is the same in each execution of a message, and different for each key.
func seed(key dedup.Key) string { return outgoing.Seed(key.Hash(), key.ID) }
