package telemetry

import (
	"context"
	"errors"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/observe"
)

// Headers of the trace context, see https://www.w3.org/TR/trace-context.
const (
	headerParent = "traceparent"
	headerState  = "tracestate"
)

var propagator propagation.TraceContext

// creator returns the span that created a message with these headers; it is not valid if there is none.
func creator(headers map[string]string) trace.SpanContext {
	if headers[headerParent] == "" {
		return trace.SpanContext{}
	}
	return trace.SpanContextFromContext(propagator.Extract(context.Background(), propagation.MapCarrier(headers))) //nolint:forbidigo // an empty one: an invalid header must not give the span of the caller
}

func link(span trace.Span, headers map[string]string, attrs ...attribute.KeyValue) {
	if from := creator(headers); from.IsValid() {
		span.AddLink(trace.Link{SpanContext: from, Attributes: attrs})
	}
}

// spanOptions are what the spans of one topic have in common. Attributes and links are added to spans that are
// recorded: a span that is not sampled would cost twice as much with them.
type spanOptions struct {
	name  string
	start []trace.SpanStartOption
	attrs []attribute.KeyValue
}

func newSpanOptions(c *ConsumerConfig, topic string) *spanOptions {
	o := &spanOptions{name: "process", start: []trace.SpanStartOption{trace.WithSpanKind(trace.SpanKindConsumer)}}
	o.attrs = c.attributes(attrOperation.String("process"), attrOperationType.String("process"),
		attrSpanConsumer.String(c.Name))
	if topic != mixedTopics {
		o.name += " " + topic
		o.attrs = append(o.attrs, attrDestination.String(topic))
	}
	return o
}

type passKey struct{}

// passSpan is the span of one pass. The hooks of a pass run one after the other.
type passSpan struct {
	span     trace.Span
	messages []trace.Span // with Config.SpanPerMessage
	attempts int
	claim    time.Duration // the longest wait for claims
}

// startSpan starts the span of a pass. It is a child of the span in ctx, if there is one, and links to the spans that
// created the messages. A replay's span also links to that of the delivery that parked the message.
func (c *consumerTrace) startSpan(ctx context.Context, d *consumer.Delivery) context.Context {
	if len(d.Messages) == 0 {
		return ctx
	}
	first := d.Messages[0]
	topic := first.Topic
	for _, m := range d.Messages[1:] {
		if m.Topic != topic {
			topic = mixedTopics
			break
		}
	}
	child := false
	if c.t.cfg.ParentFromMessage && len(d.Messages) == 1 && !trace.SpanContextFromContext(ctx).IsValid() {
		if from := creator(first.Headers); from.IsValid() {
			ctx, child = trace.ContextWithRemoteSpanContext(ctx, from), true
		}
	}
	common := c.spans.of(topic)
	ctx, span := c.t.tracer.Start(ctx, common.name, common.start...)
	p := &passSpan{span: span}
	if !span.IsRecording() {
		return context.WithValue(ctx, passKey{}, p)
	}
	span.SetAttributes(common.attrs...)
	if d.ParkedBy != "" {
		link(span, map[string]string{headerParent: d.ParkedBy}, attrLetter.String(d.Letter.String()))
	}
	for _, m := range d.Messages {
		if !child {
			link(span, m.Headers)
		}
		if c.t.cfg.SpanPerMessage && len(d.Messages) > 1 {
			own := c.spans.of(m.Topic)
			_, one := c.t.tracer.Start(ctx, own.name, own.start...)
			one.SetAttributes(own.attrs...)
			link(one, m.Headers)
			p.messages = append(p.messages, one)
		}
	}
	return context.WithValue(ctx, passKey{}, p)
}

// parking returns the context of the pass's span, for the span of a replay.
func (c *consumerTrace) parking(ctx context.Context, _ *consumer.Delivery) string {
	p, _ := ctx.Value(passKey{}).(*passSpan)
	if p == nil || !p.span.SpanContext().IsSampled() {
		return ""
	}
	carrier := propagation.MapCarrier{}
	propagator.Inject(trace.ContextWithSpan(ctx, p.span), carrier)
	return carrier[headerParent]
}

// attemptSpan adds a span for a transaction that failed, after the fact.
func (c *consumerTrace) attemptSpan(ctx context.Context, _ *consumer.Delivery, a consumer.Attempt) {
	p, _ := ctx.Value(passKey{}).(*passSpan)
	if p == nil || !p.span.IsRecording() {
		return
	}
	p.attempts++
	p.claim = max(p.claim, a.Claim)
	if a.Result == observe.Committed {
		return
	}
	attrs := []attribute.KeyValue{
		attrSpanConsumer.String(c.cfg.Name), attrSpanResult.String(string(a.Result)),
		attrSpanCause.String(string(a.Cause)),
		attrErrorType.String(string(a.Cause)), attrBatchCount.Int(a.Messages), attrClaimWait.Float64(a.Claim.Seconds()),
	}
	if state := sqlState(a.Err); state != "" {
		attrs = append(attrs, attrStatusCode.String(state))
	}
	_, span := c.t.tracer.Start(trace.ContextWithSpan(ctx, p.span), "attempt", trace.WithTimestamp(a.Began),
		trace.WithAttributes(attrs...))
	span.SetStatus(codes.Error, string(a.Cause))
	span.End(trace.WithTimestamp(a.Began.Add(a.Took)))
}

// sqlState returns the SQLSTATE of an error of PostgreSQL. Other drivers have numbers instead; the text of the error
// may quote a key.
func sqlState(err error) string {
	if coded, ok := errors.AsType[interface {
		error
		SQLState() string
	}](err); ok {
		return coded.SQLState()
	}
	return ""
}

func (c *consumerTrace) endSpan(ctx context.Context, d *consumer.Delivery, outcomes []consumer.MessageOutcome) {
	p, _ := ctx.Value(passKey{}).(*passSpan)
	if p == nil {
		return
	}
	if !p.span.IsRecording() {
		p.span.End()
		return
	}
	for i, span := range p.messages {
		c.describe(span, d.Messages[i], &outcomes[i])
		span.End()
	}
	p.span.SetAttributes(attrAttempts.Int(p.attempts), attrClaimWait.Float64(p.claim.Seconds()))
	if d.Letter != (consumer.DeadLetterID{}) {
		p.span.SetAttributes(attrLetter.String(d.Letter.String()))
	}
	if len(outcomes) == 1 {
		c.describe(p.span, d.Messages[0], &outcomes[0])
	} else {
		describeBatch(p.span, outcomes)
	}
	p.span.End()
}

// describe adds what happened to m. The text of the error is left out: it may quote anything.
func (c *consumerTrace) describe(span trace.Span, m *consumer.Message, o *consumer.MessageOutcome) {
	attrs := make([]attribute.KeyValue, 0, 8)
	attrs = append(attrs, attrSpanOutcome.String(string(o.Outcome)), attrDelivery.Int(max(m.Attempt, 1)))
	if o.Key.ID != "" {
		attrs = append(attrs, attrKey.String(c.t.cfg.HideKeys.Key(o.Key.ID)))
	}
	if m.ID != "" {
		attrs = append(attrs, attrMessageID.String(c.t.cfg.HideKeys.Key(m.ID)))
	}
	if m.Position != "" {
		attrs = append(attrs, attrPosition.String(c.t.cfg.HideKeys.Position(m.Position, o.Key.ID, m.ID)))
	}
	if o.Letter != (consumer.DeadLetterID{}) {
		attrs = append(attrs, attrLetter.String(o.Letter.String()))
	}
	if o.Cause != "" {
		attrs = append(attrs, attrSpanCause.String(string(o.Cause)))
	}
	if failed(o.Outcome) {
		attrs = append(attrs, attrErrorType.String(string(o.Cause)))
		span.SetStatus(codes.Error, string(o.Cause))
	}
	span.SetAttributes(attrs...)
}

// describeBatch adds how many messages had each outcome.
func describeBatch(span trace.Span, outcomes []consumer.MessageOutcome) {
	counts := make([]int, len(outcomeIndex.words))
	var cause observe.Cause
	for i := range outcomes {
		if at := outcomeIndex.of(outcomes[i].Outcome); at >= 0 {
			counts[at]++
		}
		if cause == "" && failed(outcomes[i].Outcome) {
			cause = outcomes[i].Cause
		}
	}
	span.SetAttributes(attrBatchCount.Int(len(outcomes)))
	for i, n := range counts {
		if n > 0 {
			span.SetAttributes(attribute.Int(string(attrSpanOutcome)+"."+string(outcomeIndex.words[i]), n))
		}
	}
	if cause != "" {
		span.SetAttributes(attrErrorType.String(string(cause)))
		span.SetStatus(codes.Error, string(cause))
	}
}

// failed reports an outcome that makes a span an error. A message that is held waits for something else.
func failed(o observe.Outcome) bool {
	return o == observe.Retried || o == observe.Parked || o == observe.Rejected
}
