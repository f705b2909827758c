package telemetry

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/txonce/txonce/adapters/httpidem"
)

// HTTP returns the hooks for the Guard of that name: httpidem.Config.Trace. Calling it again with the same name returns
// hooks for the same series. A nil Telemetry returns nil.
//
// A request is a span "httpidem NAME" below the span of the server, with the decision and with the request's identity
// in the database, which "txonce explain" takes. The handler's spans are its children.
func (t *Telemetry) HTTP(name string) *httpidem.Trace {
	if t == nil {
		return nil
	}
	t.mu.Lock()
	g, known := t.guards[name]
	if !known {
		g = t.newGuard(name)
		t.guards[name] = g
	}
	t.mu.Unlock()
	all := &httpidem.Trace{}
	if t.meters != nil {
		counts := each(g.count)
		counts.WentBack = t.losses.of(name)
		all = all.Then(counts)
	}
	if t.tracer != nil {
		spans := each(g.endSpan)
		spans.Start = g.startSpan
		all = all.Then(spans)
	}
	return all
}

// each returns a Trace whose hooks, besides Start, are hook.
func each(hook func(context.Context, httpidem.Event)) *httpidem.Trace {
	return &httpidem.Trace{
		Committed: hook, Recorded: hook, Unstored: hook, Replayed: hook, Refused: hook, Panicked: hook,
	}
}

// answered is what a Guard did, and why.
type answered struct {
	decision httpidem.Decision
	reason   httpidem.Reason
}

// guardTrace are the series of one Guard.
type guardTrace struct {
	t             *Telemetry
	name          string
	requests      map[answered]*cell // not changed after newGuard
	durations     map[httpidem.Decision][]metric.RecordOption
	guardOnly     []metric.RecordOption
	commitUnknown cell
}

func (t *Telemetry) newGuard(name string) *guardTrace {
	guard := attrGuard.String(name)
	only := metric.WithAttributeSet(attribute.NewSet(guard))
	g := &guardTrace{
		t: t, name: name, requests: map[answered]*cell{}, durations: map[httpidem.Decision][]metric.RecordOption{},
		guardOnly: []metric.RecordOption{only},
	}
	g.commitUnknown.born, g.commitUnknown.options = true, []metric.ObserveOption{only}
	for _, decision := range httpidem.Decisions() {
		decided := attrDecision.String(string(decision))
		g.durations[decision] = []metric.RecordOption{metric.WithAttributeSet(attribute.NewSet(guard, decided))}
		for _, reason := range reasonsOf(decision) {
			g.requests[answered{decision, reason}] = &cell{
				born: true, options: []metric.ObserveOption{metric.WithAttributeSet(attribute.NewSet(guard, decided,
					attrReason.String(string(reason))))},
			}
		}
	}
	return g
}

// reasonsOf returns the reasons that may come with a decision; "": none.
func reasonsOf(decision httpidem.Decision) []httpidem.Reason {
	switch decision {
	case httpidem.Conflict:
		return []httpidem.Reason{httpidem.InFlight}
	case httpidem.Mismatched:
		return []httpidem.Reason{httpidem.Mismatch}
	case httpidem.Recorded:
		return []httpidem.Reason{"", httpidem.Failed}
	case httpidem.Refused:
		return httpidem.Reasons()
	default:
		return []httpidem.Reason{""}
	}
}

func (g *guardTrace) count(ctx context.Context, e httpidem.Event) {
	if c := g.requests[answered{e.Decision, e.Reason}]; c != nil {
		c.n.Add(1)
	}
	g.t.meters.httpDuration.Record(ctx, e.Took.Seconds(), g.durations[e.Decision]...)
	if e.Waited > 0 {
		g.t.meters.httpWait.Record(ctx, e.Waited.Seconds(), g.guardOnly...)
	}
	if e.Decision == httpidem.Replayed {
		g.t.meters.httpReplayAge.Record(ctx, e.Age.Seconds(), g.guardOnly...)
	}
	if e.InDoubt {
		g.commitUnknown.n.Add(1)
	}
}

func (g *guardTrace) observe(o metric.Observer, m *meters) {
	for _, c := range g.requests {
		c.observe(o, m.httpRequests)
	}
	g.commitUnknown.observe(o, m.httpCommitUnknown)
}

type requestKey struct{}

func (g *guardTrace) startSpan(ctx context.Context, _ httpidem.Event) context.Context {
	ctx, span := g.t.tracer.Start(ctx, "httpidem "+g.name, trace.WithAttributes(attrSpanGuard.String(g.name)))
	return context.WithValue(ctx, requestKey{}, span)
}

func (g *guardTrace) endSpan(ctx context.Context, e httpidem.Event) {
	span, _ := ctx.Value(requestKey{}).(trace.Span)
	if span == nil {
		return
	}
	defer span.End()
	if !span.IsRecording() {
		return
	}
	attrs := make([]attribute.KeyValue, 0, 8)
	attrs = append(attrs, attrSpanDecision.String(string(e.Decision)))
	if e.Key != "" {
		attrs = append(attrs, attrKey.String(g.t.cfg.HideKeys.Key(e.Key)))
	}
	if e.Status > 0 {
		attrs = append(attrs, attrHTTPStatus.Int(e.Status))
	}
	if e.Reason != "" {
		attrs = append(attrs, attrSpanReason.String(string(e.Reason)))
	}
	if e.Waited > 0 {
		attrs = append(attrs, attrWaited.Float64(e.Waited.Seconds()))
	}
	if e.Decision == httpidem.Replayed {
		attrs = append(attrs, attrAge.Float64(e.Age.Seconds()))
	}
	if e.InDoubt {
		attrs = append(attrs, attrInDoubt.Bool(true))
	}
	switch {
	case e.Decision == httpidem.Panicked:
		span.SetStatus(codes.Error, string(e.Decision))
	case e.Status >= 500:
		span.SetStatus(codes.Error, string(e.Reason))
	}
	span.SetAttributes(attrs...)
}
