// Package hooks calls the hooks of a Trace. Hooks only observe: it is logged when one panics or ends its goroutine, and
// has no other effect.
package hooks

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/txonce/txonce/internal/usercode"
)

// logEvery is how often panics of hooks are logged: a hook that panics may do so for each message.
const logEvery = time.Minute

// Panics logs the panics of one owner's hooks. Its fields must not change after the first call. It is safe for
// concurrent use.
type Panics struct {
	Logger *slog.Logger
	Owner  string // begins the log line, such as "consumer"

	mu     sync.Mutex
	logged time.Time
}

// Call calls f, which calls the hook of that name.
func (p *Panics) Call(ctx context.Context, hook string, f func()) {
	if ended := usercode.Run(f); ended != nil {
		p.report(func(line string, args ...any) { p.Logger.ErrorContext(ctx, line, args...) }, "a hook of Trace",
			hook, ended)
	}
}

// Or returns what the user's function f, the field of that name in a Config, returns, or what otherwise returns if f
// does not return.
func Or[R any](p *Panics, name string, f, otherwise func() R) R {
	return usercode.Or(f, func(ended *usercode.Ended) R {
		p.report(p.Logger.Error, "a function of the Config", name, ended)
		return otherwise()
	})
}

func (p *Panics) report(write func(line string, args ...any), what, name string, ended *usercode.Ended) {
	p.mu.Lock()
	now := time.Now()
	log := p.logged.IsZero() || now.Sub(p.logged) >= logEvery
	if log {
		p.logged = now
	}
	p.mu.Unlock()
	if log {
		write(p.Owner+": "+what+" panicked, or ended its goroutine; the work goes on as without it", "function", name,
			"error", ended, "stack", string(ended.Stack))
	}
}

// Call calls hook with e unless hook is nil.
func Call[E any](ctx context.Context, p *Panics, name string, hook func(context.Context, E), e E) {
	if hook != nil {
		p.Call(ctx, name, func() { hook(ctx, e) })
	}
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

// ThenStart is Then for hooks that return a ctx, or nil for the ctx that they got. The second gets the ctx of the
// first.
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

// Complete sets those of hooks that are nil to a function that does nothing, and makes the others safe to call. Each
// has its name as the key.
func Complete[E any](p *Panics, hooks map[string]*func(context.Context, E)) {
	for name, hook := range hooks {
		if *hook == nil {
			*hook = func(context.Context, E) {}
			continue
		}
		own := *hook
		*hook = func(ctx context.Context, e E) { Call(ctx, p, name, own, e) }
	}
}
