// Package names keeps the names of the consumers that are registered on one store, and who registered each.
package names

import (
	"context"
	"fmt"
	"sync"

	"github.com/txonce/txonce/dedup"
)

type consumerKey struct{}

// ByConsumer marks the ctx of a Register that a Consumer calls for its own name.
func ByConsumer(ctx context.Context) context.Context {
	return context.WithValue(ctx, consumerKey{}, true)
}

// Names holds the names that are registered on one store. The zero value is ready to use. It is safe for concurrent
// use.
type Names struct {
	mu    sync.Mutex
	taken map[string]bool // true: by a Consumer, which gives the name back when it is closed
}

// Take reserves name for the caller that ctx belongs to. If the name is taken, the error is dedup.ErrNameTaken and says
// by whom.
func (n *Names) Take(ctx context.Context, name string) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	byConsumer, _ := ctx.Value(consumerKey{}).(bool)
	switch holder, taken := n.taken[name]; {
	case taken && holder:
		return fmt.Errorf("%w: a Consumer has registered %q, and needs no other call of Register: close that Consumer first, or use another name",
			dedup.ErrNameTaken, name)
	case taken && byConsumer:
		return byCall(name)
	case taken:
		return fmt.Errorf("%w: an earlier call of Register has registered %q: use another name, or call Release first",
			dedup.ErrNameTaken, name)
	}
	if n.taken == nil {
		n.taken = map[string]bool{}
	}
	n.taken[name] = byConsumer
	return nil
}

// NameFree implements driver.Registrar.
func (n *Names) NameFree(name string) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if byConsumer, taken := n.taken[name]; taken && !byConsumer {
		return byCall(name)
	}
	return nil
}

func byCall(name string) error {
	return fmt.Errorf("%w: a call of Register has registered %q: if that call was for this Consumer, remove it, because a Consumer registers its name by itself; "+
		"if something else uses the name, such as httpidem, use another one", dedup.ErrNameTaken, name)
}

// Free releases name, because its registration failed or its consumer was closed.
func (n *Names) Free(name string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.taken, name)
}
