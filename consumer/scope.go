package consumer

import (
	"context"
	"sync"

	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/outbox"
)

// Scope returns ctx for enqueueing on behalf of msg: messages without ID get one derived from msg, the same in whatever
// batch msg is handled again. Handle has such a context already. HandleBatch does several messages' work and needs Scope
// or explicit IDs; ctx is the one it got, msg one of the messages it got. Outside of a handler Scope has no effect.
func Scope(ctx context.Context, msg *Message) context.Context {
	s, _ := ctx.Value(scopesKey{}).(*scopes)
	if s == nil {
		none, _ := outbox.WithScope(ctx, "")
		return none
	}
	return outbox.JoinScope(ctx, s.of(msg))
}

type scopesKey struct{}

// scopes are the messages of one execution of a BatchHandler.
type scopes struct {
	outer context.Context // derives no IDs
	key   func(*Message) dedup.Key

	mu    sync.Mutex
	open  map[*Message]context.Context
	ends  []func()
	ended bool
}

// withScopes returns the context for a BatchHandler; end ends all scopes that it opened.
func withScopes(ctx context.Context, key func(*Message) dedup.Key) (scoped context.Context, end func()) {
	outer, _ := outbox.WithScope(ctx, "") // a handler further out does not lend its own
	s := &scopes{outer: outer, key: key, open: map[*Message]context.Context{}}
	return context.WithValue(outer, scopesKey{}, s), s.end
}

func (s *scopes) of(msg *Message) context.Context {
	s.mu.Lock()
	defer s.mu.Unlock()
	if ctx, ok := s.open[msg]; ok {
		return ctx
	}
	key := s.key(msg)
	if key.ID == "" || s.ended { // not a message of this batch, or the batch is done
		return s.outer
	}
	ctx, end := outbox.WithScope(s.outer, seed(key))
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
func seed(key dedup.Key) string {
	derived := key.Hash()
	return string(derived[:])
}
