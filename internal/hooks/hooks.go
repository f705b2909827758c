// Package hooks calls the hooks of a Trace. Hooks only observe: a panic of theirs is logged and has no other effect.
package hooks

import (
	"context"
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync"
	"time"
)

// logEvery is how often panics of hooks are logged: a hook that panics may do so for each message.
const logEvery = time.Minute

// Panics logs the panics of one owner's hooks. Its fields must not change after the first call. It is safe for concurrent use.
type Panics struct {
	Logger *slog.Logger
	Owner  string // begins the log line, such as "consumer"

	mu     sync.Mutex
	logged time.Time
}

// Recover ends a panic of hook. Defer it right before the call of the hook.
func (p *Panics) Recover(ctx context.Context, hook string) {
	v := recover()
	if v == nil {
		return
	}
	p.mu.Lock()
	now := time.Now()
	log := p.logged.IsZero() || now.Sub(p.logged) >= logEvery
	if log {
		p.logged = now
	}
	p.mu.Unlock()
	if log {
		p.Logger.ErrorContext(ctx, p.Owner+": a hook of Trace panicked; the message is handled as without the hook", "hook", hook,
			"error", fmt.Sprint(v), "stack", string(debug.Stack()))
	}
}

// Call calls hook with e unless hook is nil.
func Call[E any](ctx context.Context, p *Panics, name string, hook func(context.Context, E), e E) {
	if hook != nil {
		call(ctx, p, name, hook, e)
	}
}

func call[E any](ctx context.Context, p *Panics, name string, hook func(context.Context, E), e E) {
	defer p.Recover(ctx, name)
	hook(ctx, e)
}

// Then returns a hook that calls first and then second. Nil hooks are left out.
func Then[E any](first, second func(context.Context, E)) func(context.Context, E) {
	switch {
	case first == nil:
		return second
	case second == nil:
		return first
	}
	return func(ctx context.Context, e E) {
		defer second(ctx, e) // also when first panics
		first(ctx, e)
	}
}

// ThenWith is Then for hooks with one more argument.
func ThenWith[D, E any](first, second func(context.Context, D, E)) func(context.Context, D, E) {
	switch {
	case first == nil:
		return second
	case second == nil:
		return first
	}
	return func(ctx context.Context, d D, e E) {
		defer second(ctx, d, e) // also when first panics
		first(ctx, d, e)
	}
}

// ThenStart is Then for hooks that return a ctx, or nil for the ctx that they got. The second gets the ctx of the first.
func ThenStart[D any](first, second func(context.Context, D) context.Context) func(context.Context, D) context.Context {
	switch {
	case first == nil:
		return second
	case second == nil:
		return first
	}
	return func(ctx context.Context, d D) context.Context {
		if started := first(ctx, d); started != nil {
			ctx = started
		}
		if started := second(ctx, d); started != nil {
			ctx = started
		}
		return ctx
	}
}

// Complete sets those of hooks that are nil to a function that does nothing.
func Complete[E any](hooks ...*func(context.Context, E)) {
	for _, hook := range hooks {
		if *hook == nil {
			*hook = func(context.Context, E) {}
		}
	}
}
