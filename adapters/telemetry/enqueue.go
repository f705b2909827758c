package telemetry

import (
	"context"
	"maps"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/txonce/txonce/observe"
	"github.com/txonce/txonce/outbox"
)

// Writer returns an outbox.Writer that enqueues with w and gives each message the trace context of a new span "create
// TOPIC". The span is a child of the span in ctx, which in a handler's ctx is that of its delivery. The context goes
// into the headers traceparent and tracestate, and so reaches the consumers of the published message. A message that
// has a traceparent already keeps it and gets no span.
//
// The headers are no part of a message's fingerprint or ID. When the transaction rolls back, the spans remain although
// nothing is published. With a nil Telemetry, or without Config.TracerProvider, Writer returns w. It is safe for
// concurrent use.
func Writer[TTx any](t *Telemetry, w outbox.Writer[TTx]) outbox.Writer[TTx] {
	if t == nil || t.tracer == nil {
		return w
	}
	return &writer[TTx]{t, w}
}

type writer[TTx any] struct {
	t    *Telemetry
	next outbox.Writer[TTx]
}

func (w *writer[TTx]) Enqueue(ctx context.Context, tx TTx, msgs ...outbox.Message) error {
	traced, spans := w.t.create(ctx, msgs)
	err := w.next.Enqueue(ctx, tx, traced...)
	for _, span := range spans {
		if err != nil {
			span.SetStatus(codes.Error, "not enqueued")
			span.SetAttributes(attrErrorType.String(string(observe.CauseDatabase)))
		}
		span.End()
	}
	return err
}

// create returns copies of msgs with the contexts of new spans, and the spans.
func (t *Telemetry) create(ctx context.Context, msgs []outbox.Message) (traced []outbox.Message, spans []trace.Span) {
	traced = make([]outbox.Message, len(msgs))
	copy(traced, msgs)
	for i := range traced {
		m := &traced[i]
		if m.Headers[headerParent] != "" {
			continue
		}
		attrs := make([]attribute.KeyValue, 0, 5)
		attrs = append(attrs, attrOperation.String("create"), attrOperationType.String("create"),
			attrDestination.String(m.Topic))
		if t.cfg.System != "" {
			attrs = append(attrs, attrSystem.String(t.cfg.System))
		}
		if m.ID != "" {
			attrs = append(attrs, attrMessageID.String(t.cfg.HideKeys.Key(m.ID)))
		}
		created, span := t.tracer.Start(ctx, "create "+m.Topic, trace.WithSpanKind(trace.SpanKindProducer),
			trace.WithAttributes(attrs...))
		spans = append(spans, span)
		headers := make(map[string]string, len(m.Headers)+2)
		maps.Copy(headers, m.Headers)
		delete(headers, headerState) // it belongs to a traceparent
		propagator.Inject(created, propagation.MapCarrier(headers))
		m.Headers = headers
	}
	return traced, spans
}
