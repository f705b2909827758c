package driver

import (
	"context"

	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/consumer/internal/traced"
)

// WithTrace returns a ctx. With it, Process, ProcessBatch and Replay also call the hooks of t, after those of
// consumer.Config.Trace. It is for callers that want to know what happened to their own message, such as
// adapters/webhook: nil as the answer of Process means that the message was committed now, or before, or is parked.
// Paused and Resumed are not called. t replaces a Trace that ctx already has.
func WithTrace(ctx context.Context, t *consumer.Trace) context.Context {
	return context.WithValue(ctx, traced.Key{}, t)
}
