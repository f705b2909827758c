package telemetry

import (
	"cmp"
	"context"
	"strconv"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/txonce/txonce/consumer/driver"
	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/observe"
)

// attrSource is the topic, queue or group of a subscriber.
const attrSource = attribute.Key("source")

// sourceKey is one series of the events of subscribers.
type sourceKey struct{ system, source, event string }

// sourceEventNames are the events that are exported from the start.
var sourceEventNames = []string{"assigned", "revoked", "gap", "went_back", "read_again", "returned", "lost"}

// Subscriber returns the hooks for a subscriber: SubscriberConfig.Trace of the adapters for brokers. system is as in
// ConsumerConfig. name is the queue, or Kafka's group; topics are Kafka's topics. Their series are exported from the
// start with 0, so that an alert notices the first message that was deleted before it was read, and the first time that
// the database went back. Subscribers of the same
// name share their series; one that is paused counts. A nil Telemetry returns nil, and so does one without
// Config.MeterProvider and Config.AckSpans.
func (t *Telemetry) Subscriber(system, name string, topics ...string) *driver.SourceTrace {
	var spans *driver.SourceTrace
	if t != nil && t.cfg.AckSpans {
		spans = &driver.SourceTrace{Acked: t.ackSpans(name)}
	}
	if t == nil || t.meters == nil {
		return spans
	}
	system = cmp.Or(system, t.cfg.System)
	for _, source := range append([]string{name}, topics...) {
		for _, event := range sourceEventNames {
			t.sourceCell(system, source, event)
		}
	}
	t.pauses.born(attrSource, name, observe.CauseBroker)
	counts := func(event string) func(context.Context, driver.SourceEvent) {
		return func(_ context.Context, e driver.SourceEvent) {
			t.sourceCell(e.System, e.Source, event).n.Add(int64(max(e.Messages, 1)))
		}
	}
	return (&driver.SourceTrace{
		Assigned: counts("assigned"), Revoked: counts("revoked"), Gap: counts("gap"), Returned: counts("returned"),
		Lost: counts("lost"),
		WentBack: func(_ context.Context, e driver.SourceEvent) {
			t.sourceCell(e.System, e.Source, "went_back").n.Add(1)
			t.sourceCell(e.System, e.Source, "read_again").n.Add(int64(max(e.Messages, 0)))
		},
		Paused: t.pauses.begin(attrSource, name), Resumed: t.pauses.end(attrSource, name),
	}).Then(spans)
}

// ackSpans returns the hook Acked of a subscriber, which writes a span after the fact.
func (t *Telemetry) ackSpans(name string) func(context.Context, driver.SourceEvent) {
	return func(ctx context.Context, e driver.SourceEvent) {
		operation, ended := "ack", time.Now()
		began := e.Began
		if began.IsZero() {
			began = ended
		}
		attrs := make([]attribute.KeyValue, 0, 8)
		attrs = append(attrs, attrSystem.String(e.System), attrOperationType.String("settle"),
			attrDestination.String(e.Source))
		if e.Message == nil {
			operation = "commit"
			attrs = append(attrs, attrGroup.String(name), attrPartition.String(strconv.Itoa(int(e.Partition))),
				attrOffset.Int64(e.Offset))
		} else {
			attrs = append(attrs, attrPosition.String(t.cfg.HideKeys.Position(e.Message.Position, e.Message.ID)))
		}
		_, span := t.tracer.Start(ctx, operation+" "+e.Source, trace.WithNewRoot(),
			trace.WithSpanKind(trace.SpanKindClient),
			trace.WithTimestamp(began), trace.WithAttributes(append(attrs, attrOperation.String(operation))...))
		if e.Message != nil {
			link(span, e.Message.Headers)
		}
		span.End(trace.WithTimestamp(ended))
	}
}

func (t *Telemetry) sourceCell(system, source, event string) *cell {
	t.mu.Lock()
	defer t.mu.Unlock()
	key := sourceKey{system, source, event}
	c := t.sources[key]
	if c == nil {
		if len(t.sources) >= maxTopics*len(sourceEventNames) {
			key.source = otherTopic
			if c = t.sources[key]; c != nil {
				return c
			}
		}
		c = &cell{born: true, options: []metric.ObserveOption{metric.WithAttributeSet(attribute.NewSet(
			attrSystem.String(system), attrSource.String(key.source), attrEvent.String(event)))}}
		t.sources[key] = c
	}
	return c
}

// sweepTrace are the series of sweepers.
type sweepTrace struct{ rows cell }

// Sweeper returns the hooks for a sweeper: dedup.SweeperConfig.Trace. A nil Telemetry returns nil, and so does one
// without Config.MeterProvider.
func (t *Telemetry) Sweeper() *dedup.SweepTrace {
	if t == nil || t.meters == nil {
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.sweep == nil {
		t.sweep = &sweepTrace{cell{born: true}}
	}
	rows := &t.sweep.rows
	return &dedup.SweepTrace{Swept: func(_ context.Context, e dedup.SweepEvent) { rows.n.Add(int64(e.Result.Keys)) }}
}
