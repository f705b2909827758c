package telemetry

import (
	"context"
	"errors"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/txonce/txonce/observe"
	"github.com/txonce/txonce/outbox"
	"github.com/txonce/txonce/outbox/relay"
)

// Relay returns the hooks for the relay of that name: relay.Config.Trace. Calling it again with the same name returns
// hooks for the same series. A nil Telemetry returns nil.
func (t *Telemetry) Relay(name string) *relay.Trace {
	if t == nil {
		return nil
	}
	t.mu.Lock()
	r, known := t.relays[name]
	if !known {
		r = t.newRelay(name)
		t.relays[name] = r
	}
	t.mu.Unlock()
	hooks := &relay.Trace{Published: r.published}
	if t.tracer != nil {
		hooks.Start = r.startSpan
	}
	if t.meters != nil {
		for _, cause := range []observe.Cause{observe.CauseDatabase, observe.CauseBroker} {
			t.pauses.born(attrRelay, name, cause)
		}
		hooks.Settled, hooks.Lease, hooks.WentBack = r.settled, r.lease, t.losses.of(observe.Relays)
		hooks.Paused, hooks.Resumed = t.pauses.begin(attrRelay, name), t.pauses.end(attrRelay, name)
	}
	return hooks
}

// relayTrace are the series of one relay.
type relayTrace struct {
	t      *Telemetry
	name   string
	leases map[relay.LeaseKind]*cell
}

// sentCells are the series of one topic of the relays, by cause; place 0: confirmed.
type sentCells struct {
	sent      []cell
	durations [][]metric.RecordOption
	delay     []metric.RecordOption
}

func (t *Telemetry) newRelay(name string) *relayTrace {
	r := &relayTrace{t: t, name: name, leases: map[relay.LeaseKind]*cell{}}
	for _, kind := range []relay.LeaseKind{relay.LeaseTaken, relay.LeaseRenewed, relay.LeaseLost, relay.LeaseStale} {
		r.leases[kind] = &cell{born: true, options: []metric.ObserveOption{metric.WithAttributeSet(attribute.NewSet(
			attrRelay.String(name), attrKind.String(string(kind))))}}
	}
	return r
}

// newSentCells returns the series of one topic, which all relays share: they have no attribute that names the relay.
func (t *Telemetry) newSentCells(topic string) *sentCells {
	cells := &sentCells{sent: make([]cell, len(causeIndex.words))}
	cells.delay = []metric.RecordOption{metric.WithAttributeSet(attribute.NewSet(attrTopic.String(topic)))}
	for i, cause := range causeIndex.words {
		attrs := t.sendAttributes(topic)
		if cause != "" {
			attrs = append(attrs, attrErrorType.String(string(cause)))
		}
		set := metric.WithAttributeSet(attribute.NewSet(attrs...))
		cells.sent[i].born = cause == "" && topic != mixedTopics
		cells.sent[i].options = []metric.ObserveOption{set}
		cells.durations = append(cells.durations, []metric.RecordOption{set})
	}
	return cells
}

func (t *Telemetry) sendAttributes(topic string) []attribute.KeyValue {
	attrs := make([]attribute.KeyValue, 0, 8)
	attrs = append(attrs, attrOperation.String("send"))
	if topic != mixedTopics {
		attrs = append(attrs, attrDestination.String(topic))
	}
	if t.cfg.System != "" {
		attrs = append(attrs, attrSystem.String(t.cfg.System))
	}
	return attrs
}

// startSpan starts the span of a call of the publisher, which links to the spans that created the messages. It is a
// root: its messages are of many traces.
func (r *relayTrace) startSpan(ctx context.Context, p *relay.Publishing) context.Context {
	var links []trace.Link
	topic := commonTopic(p.Messages)
	for i := range p.Messages {
		if from := creator(p.Messages[i].Headers); from.IsValid() {
			links = append(links, trace.Link{SpanContext: from})
		}
	}
	name := "send"
	if topic != mixedTopics {
		name += " " + topic
	}
	attrs := append(r.t.sendAttributes(topic), attrOperationType.String("send"), attrBatchCount.Int(len(p.Messages)),
		attrSpanRelay.String(r.name))
	ctx, span := r.t.tracer.Start(ctx, name, trace.WithNewRoot(), trace.WithSpanKind(trace.SpanKindClient),
		trace.WithTimestamp(p.Began),
		trace.WithLinks(links...), trace.WithAttributes(attrs...))
	return context.WithValue(ctx, sendKey{}, span)
}

type sendKey struct{}

func (r *relayTrace) published(ctx context.Context, p *relay.Publishing, errs []error) {
	var failed observe.Cause // the first one
	for i := range p.Messages {
		var cause observe.Cause
		if i < len(errs) {
			cause = publishCause(errs[i])
		}
		if failed == "" {
			failed = cause
		}
		if r.t.meters != nil {
			r.t.sends.of(p.Messages[i].Topic).sent[max(causeIndex.of(cause), 0)].n.Add(1)
		}
	}
	if r.t.meters != nil {
		cells := r.t.sends.of(commonTopic(p.Messages))
		r.t.meters.operationDuration.Record(ctx, time.Since(p.Began).Seconds(),
			cells.durations[max(causeIndex.of(failed), 0)]...)
	}
	if span, ok := ctx.Value(sendKey{}).(trace.Span); ok {
		if failed != "" {
			span.SetAttributes(attrErrorType.String(string(failed)))
			span.SetStatus(codes.Error, string(failed))
		}
		span.End()
	}
}

// publishCause names why a message was not confirmed.
func publishCause(err error) observe.Cause {
	_, topic := errors.AsType[*outbox.TopicError](err)
	_, unavailable := errors.AsType[*outbox.UnavailableError](err)
	switch {
	case err == nil:
		return ""
	case topic, unavailable:
		return observe.CauseBroker
	case outbox.IsPermanent(err):
		return observe.CausePermanent
	case errors.Is(err, context.Canceled):
		return observe.CauseCancelled
	}
	return observe.CauseHandler
}

func (r *relayTrace) settled(ctx context.Context, settlements []relay.Settlement) {
	for i := range settlements {
		if s := &settlements[i]; s.Outcome == observe.Processed {
			m := s.Message
			r.t.meters.confirmDelay.Record(ctx, max(0, time.Since(m.Enqueued).Seconds()),
				r.t.sends.of(m.Topic).delay...)
		}
	}
}

func (r *relayTrace) lease(_ context.Context, e relay.LeaseEvent) {
	if c := r.leases[e.Kind]; c != nil {
		c.n.Add(1)
	}
}

func (r *relayTrace) observe(o metric.Observer, m *meters) {
	for _, c := range r.leases {
		c.observe(o, m.relayLeases)
	}
}

// commonTopic returns the topic of all messages, or mixedTopics.
func commonTopic(msgs []outbox.Message) string {
	for i := range msgs {
		if msgs[i].Topic != msgs[0].Topic {
			return mixedTopics
		}
	}
	return msgs[0].Topic
}
