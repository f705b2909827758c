package telemetry

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/txonce/txonce/adapters/webhook"
)

// eventOutcomes are what becomes of the events of webhooks.
const (
	eventNew       = "new"
	eventDuplicate = "duplicate"
	eventParked    = "parked"
	eventDeferred  = "deferred"
	eventRejected  = "rejected"
	eventDropped   = "dropped"
)

// answerClasses are the classes of statuses that a Receiver answers with.
var answerClasses = []string{"2xx", "4xx", "5xx"}

func answerClass(status int) int {
	switch {
	case status >= 500:
		return 2
	case status >= 400:
		return 1
	}
	return 0
}

// Webhook returns the hooks for the Receiver of a source: webhook.Config.Trace. source is the Source.Name of its
// Verifier, such as "stripe". Calling it again with the same name returns hooks for the same series. A nil Telemetry
// returns nil.
//
// A delivery is a span "webhook SOURCE" below the span of the server, and the span of the consumer that handles its
// events is its child. It has an event for each of them, with what became of it.
func (t *Telemetry) Webhook(source string) *webhook.Trace {
	if t == nil {
		return nil
	}
	t.mu.Lock()
	w, known := t.webhooks[source]
	if !known {
		w = t.newWebhook(source)
		t.webhooks[source] = w
	}
	t.mu.Unlock()
	all := &webhook.Trace{}
	if t.meters != nil {
		all = all.Then(w.metrics())
	}
	if t.tracer != nil {
		all = all.Then(w.spans())
	}
	return all
}

// webhookTrace are the series of one source of webhooks.
type webhookTrace struct {
	t          *Telemetry
	source     string
	events     map[string]*cell // not changed after newWebhook
	deliveries []cell           // by answerClasses
	durations  [][]metric.RecordOption
	refused    *limited[*cell] // by refusal, which a Verifier may choose
	late       cell
	sourceOnly []metric.RecordOption
}

func (t *Telemetry) newWebhook(source string) *webhookTrace {
	name := attrSource.String(source)
	only := metric.WithAttributeSet(attribute.NewSet(name))
	w := &webhookTrace{
		t: t, source: source, events: map[string]*cell{}, deliveries: make([]cell, len(answerClasses)),
		sourceOnly: []metric.RecordOption{only},
	}
	w.late.born, w.late.options = true, []metric.ObserveOption{only}
	for _, outcome := range []string{eventNew, eventDuplicate, eventParked, eventDeferred, eventRejected, eventDropped} {
		w.events[outcome] = &cell{born: true, options: []metric.ObserveOption{metric.WithAttributeSet(attribute.NewSet(
			name, attrOutcome.String(outcome)))}}
	}
	for i, class := range answerClasses {
		set := metric.WithAttributeSet(attribute.NewSet(name, attrAnswer.String(class)))
		w.deliveries[i].born, w.deliveries[i].options = true, []metric.ObserveOption{set}
		w.durations = append(w.durations, []metric.RecordOption{set})
	}
	w.refused = newLimited(func(refusal string) *cell {
		return &cell{born: true, options: []metric.ObserveOption{metric.WithAttributeSet(attribute.NewSet(name,
			attrRefusal.String(refusal)))}}
	})
	for _, refusal := range []webhook.Refusal{webhook.Unsigned, webhook.BadSignature, webhook.BadTime, webhook.Malformed} {
		w.refused.of(string(refusal))
	}
	return w
}

func (w *webhookTrace) metrics() *webhook.Trace {
	count := func(outcome string) func(context.Context, webhook.TraceEvent) {
		return func(context.Context, webhook.TraceEvent) { w.events[outcome].n.Add(1) }
	}
	return &webhook.Trace{
		Dropped: count(eventDropped), Accepted: count(eventNew), Parked: count(eventParked),
		Deferred: count(eventDeferred), Rejected: count(eventRejected), Duplicate: w.duplicate,
		Refused: func(_ context.Context, e webhook.TraceEvent) { w.refused.of(string(e.Refusal)).n.Add(1) },
		Late:    func(context.Context, webhook.TraceEvent) { w.late.n.Add(1) },
		Answered: func(ctx context.Context, e webhook.TraceEvent) {
			class := answerClass(e.Status)
			w.deliveries[class].n.Add(1)
			w.t.meters.webhookDuration.Record(ctx, e.Took.Seconds(), w.durations[class]...)
		},
	}
}

func (w *webhookTrace) duplicate(ctx context.Context, e webhook.TraceEvent) {
	w.events[eventDuplicate].n.Add(1)
	if e.Message != nil && !e.Message.Time.IsZero() {
		w.t.meters.webhookReplayAge.Record(ctx, max(0, time.Since(e.Message.Time)).Seconds(), w.sourceOnly...)
	}
}

func (w *webhookTrace) observe(o metric.Observer, m *meters) {
	for _, c := range w.events {
		c.observe(o, m.webhookEvents)
	}
	for i := range w.deliveries {
		w.deliveries[i].observe(o, m.webhookDeliveries)
	}
	for _, c := range w.refused.all() {
		c.observe(o, m.webhookRefused)
	}
	w.late.observe(o, m.webhookLate)
}

type deliveryKey struct{}

func (w *webhookTrace) spans() *webhook.Trace {
	event := func(outcome string) func(context.Context, webhook.TraceEvent) {
		return func(ctx context.Context, e webhook.TraceEvent) {
			span, _ := ctx.Value(deliveryKey{}).(trace.Span)
			if span == nil || !span.IsRecording() || e.Message == nil {
				return
			}
			span.AddEvent(outcome, trace.WithAttributes(attrKey.String(w.t.cfg.HideKeys.Key(e.Message.ID)),
				attrDestination.String(e.Message.Topic)))
		}
	}
	return &webhook.Trace{
		Start: func(ctx context.Context, _ webhook.TraceEvent) context.Context {
			ctx, span := w.t.tracer.Start(ctx, "webhook "+w.source, trace.WithAttributes(attrSpanSource.String(w.source)))
			return context.WithValue(ctx, deliveryKey{}, span)
		},
		Dropped: event(eventDropped), Accepted: event(eventNew), Parked: event(eventParked),
		Deferred: event(eventDeferred), Rejected: event(eventRejected), Duplicate: event(eventDuplicate),
		Refused: func(ctx context.Context, e webhook.TraceEvent) {
			if span, _ := ctx.Value(deliveryKey{}).(trace.Span); span != nil {
				span.SetAttributes(attrSpanReason.String(string(e.Refusal)))
			}
		},
		Answered: func(ctx context.Context, e webhook.TraceEvent) {
			span, _ := ctx.Value(deliveryKey{}).(trace.Span)
			if span == nil {
				return
			}
			span.SetAttributes(attrHTTPStatus.Int(e.Status))
			if e.Status >= 500 {
				span.SetStatus(codes.Error, answerClasses[answerClass(e.Status)])
			}
			span.End()
		},
	}
}
