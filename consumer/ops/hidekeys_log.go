package ops

import (
	"context"
	"log/slog"
)

// Handler returns a handler for the Loggers of consumers, relays and subscribers. It replaces the values of the
// attributes "key" and "id", which are business keys and the IDs of messages, also where the attribute "position" of
// the same line ends with one of them, and passes everything else on to next. The texts of errors stay as they are.
// Without a secret it returns next.
func (h HideKeys) Handler(next slog.Handler) slog.Handler {
	if len(h.Secret) == 0 {
		return next
	}
	return hidingHandler{next, h}
}

type hidingHandler struct {
	next slog.Handler
	keys HideKeys
}

// Enabled implements slog.Handler.
func (h hidingHandler) Enabled(ctx context.Context, level slog.Level) bool {
	return h.next.Enabled(ctx, level)
}

// Handle implements slog.Handler.
func (h hidingHandler) Handle(ctx context.Context, r slog.Record) error {
	hidden := slog.NewRecord(r.Time, r.Level, r.Message, r.PC)
	var ids []string
	r.Attrs(func(a slog.Attr) bool {
		if isKey(a) {
			ids = append(ids, a.Value.Resolve().String())
		}
		return true
	})
	r.Attrs(func(a slog.Attr) bool {
		if v := a.Value.Resolve(); a.Key == "position" && v.Kind() == slog.KindString {
			a.Value = slog.StringValue(h.keys.Position(v.String(), ids...))
		}
		hidden.AddAttrs(h.hide(a))
		return true
	})
	return h.next.Handle(ctx, hidden)
}

// WithAttrs implements slog.Handler.
func (h hidingHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	hidden := make([]slog.Attr, len(attrs))
	for i, a := range attrs {
		hidden[i] = h.hide(a)
	}
	return hidingHandler{h.next.WithAttrs(hidden), h.keys}
}

// WithGroup implements slog.Handler.
func (h hidingHandler) WithGroup(name string) slog.Handler {
	return hidingHandler{h.next.WithGroup(name), h.keys}
}

func (h hidingHandler) hide(a slog.Attr) slog.Attr {
	if isKey(a) {
		a.Value = slog.StringValue(h.keys.Key(a.Value.Resolve().String()))
	}
	return a
}

func isKey(a slog.Attr) bool {
	return (a.Key == "key" || a.Key == "id") && a.Value.Resolve().Kind() == slog.KindString
}
