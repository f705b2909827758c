package usercode

import (
	"context"
	"log/slog"
	"os"
	"sync"
	"time"
)

// Logger returns a logger whose handler, which may be the user's code, can neither panic nor end the goroutine that
// logs. A line that the handler does not take that way goes to stderr, at most one in a second.
func Logger(l *slog.Logger) *slog.Logger {
	if l == nil {
		l = slog.Default()
	}
	if _, ok := l.Handler().(*handler); ok {
		return l
	}
	return slog.New(&handler{l.Handler(), &instead{to: slog.NewTextHandler(os.Stderr, nil)}})
}

type handler struct {
	slog.Handler
	instead *instead
}

func (h *handler) Enabled(ctx context.Context, level slog.Level) (enabled bool) {
	return Or(func() bool { return h.Handler.Enabled(ctx, level) }, func(*Ended) bool { return true })
}

func (h *handler) Handle(ctx context.Context, r slog.Record) (err error) {
	ended := Run(func() { err = h.Handler.Handle(ctx, r) })
	if ended == nil {
		return err
	}
	return h.instead.handle(ctx, r, ended)
}

func (h *handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return h.with(func() slog.Handler { return h.Handler.WithAttrs(attrs) })
}

func (h *handler) WithGroup(name string) slog.Handler {
	return h.with(func() slog.Handler { return h.Handler.WithGroup(name) })
}

func (h *handler) with(f func() slog.Handler) slog.Handler {
	inner := Or(f, func(*Ended) slog.Handler { return h.Handler })
	if inner == nil {
		inner = h.Handler
	}
	return &handler{inner, h.instead}
}

// instead takes the lines of handlers that fail.
type instead struct {
	to slog.Handler

	mu   sync.Mutex
	last time.Time
}

func (i *instead) handle(ctx context.Context, r slog.Record, why *Ended) (err error) {
	i.mu.Lock()
	now := time.Now()
	due := i.last.IsZero() || now.Sub(i.last) >= time.Second
	if due {
		i.last = now
	}
	i.mu.Unlock()
	if !due {
		return nil
	}
	r = r.Clone()
	r.AddAttrs(slog.String("slog_handler", why.Error()))
	_ = Run(func() { err = i.to.Handle(ctx, r) })
	return err
}
