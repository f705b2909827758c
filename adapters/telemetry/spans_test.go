package telemetry_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/txonce/txonce/adapters/telemetry"
	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/consumer/driver"
	"github.com/txonce/txonce/outbox"
)

func traced(id, parent string) *consumer.Message {
	m := message(id)
	m.Headers = map[string]string{"traceparent": parent}
	return m
}

func TestSpanOfAMessage(t *testing.T) {
	r := newRig(t, telemetry.Config{System: "kafka"})
	var inside trace.SpanContext
	c := newConsumer(t, consumer.Config[tx]{
		Trace: r.Consumer(telemetry.ConsumerConfig{Name: "billing", Group: "g"}),
		Handle: func(ctx context.Context, _ tx, _ *consumer.Message) error {
			inside = trace.SpanContextFromContext(ctx)
			return nil
		},
	})
	if err := c.Process(t.Context(), traced("1", parent)); err != nil {
		t.Fatal(err)
	}
	spans := r.named("process orders")
	if len(spans) != 1 {
		t.Fatalf("%d spans, want 1", len(spans))
	}
	span := spans[0]
	if span.SpanKind() != trace.SpanKindConsumer || span.Parent().IsValid() || !span.SpanContext().Equal(inside) {
		t.Errorf("kind %v, parent %v; the handler's span is %v", span.SpanKind(), span.Parent(), inside)
	}
	if links := span.Links(); len(links) != 1 || links[0].SpanContext.SpanID().String() != "00f067aa0ba902b7" {
		t.Errorf("links: %v", links)
	}
	got := attributes(span)
	delete(got, "txonce.claim.wait")
	want := map[string]string{
		"messaging.system": "kafka", "messaging.operation.name": "process", "messaging.operation.type": "process",
		"messaging.destination.name": "orders", "messaging.consumer.group.name": "g", "messaging.message.id": "1",
		"txonce.consumer": "billing", "txonce.key": "1", "txonce.outcome": "processed", "txonce.delivery": "1",
		"txonce.attempts": "1",
		"txonce.position": "orders/0/1",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("attributes (-want +got):\n%s", diff)
	}
}

func TestSpansOfABatch(t *testing.T) {
	for perMessage, spans := range map[bool]int{false: 1, true: 4} {
		r := newRig(t, telemetry.Config{SpanPerMessage: perMessage})
		c := newConsumer(t, consumer.Config[tx]{Trace: r.Consumer(telemetry.ConsumerConfig{Name: "billing"})})
		errs := c.ProcessBatch(t.Context(), []*consumer.Message{traced("1", parent), traced("2", parent), message("3")})
		if err := errors.Join(errs...); err != nil {
			t.Fatal(err)
		}
		ended := r.named("process orders")
		if len(ended) != spans {
			t.Fatalf("SpanPerMessage %t: %d spans, want %d", perMessage, len(ended), spans)
		}
		batch := ended[len(ended)-1]
		if len(batch.Links()) != 2 || attributes(batch)["txonce.outcome.processed"] != "3" ||
			attributes(batch)["messaging.batch.message_count"] != "3" {
			t.Errorf("SpanPerMessage %t: %d links, %v", perMessage, len(batch.Links()), attributes(batch))
		}
		for i, span := range ended[:len(ended)-1] {
			if span.Parent().SpanID() != batch.SpanContext().SpanID() ||
				attributes(span)["txonce.key"] != fmt.Sprint(i+1) {
				t.Errorf("span %d: parent %v, %v", i, span.Parent(), attributes(span))
			}
		}
	}
}

func TestParentFromMessage(t *testing.T) {
	r := newRig(t, telemetry.Config{ParentFromMessage: true})
	c := newConsumer(t, consumer.Config[tx]{Trace: r.Consumer(telemetry.ConsumerConfig{Name: "billing"})})
	if err := c.Process(t.Context(), traced("1", parent)); err != nil {
		t.Fatal(err)
	}
	if span := r.named("process orders")[0]; span.Parent().SpanID().String() != "00f067aa0ba902b7" ||
		len(span.Links()) != 0 {
		t.Errorf("parent %v, links %v", span.Parent(), span.Links())
	}
}

func TestSpansOfFailures(t *testing.T) {
	r := newRig(t, telemetry.Config{})
	c := newConsumer(t, consumer.Config[tx]{
		Trace: r.Consumer(telemetry.ConsumerConfig{Name: "billing"}),
		Handle: func(context.Context, tx, *consumer.Message) error {
			return consumer.Permanent(uniqueViolation{})
		},
	})
	if err := c.Process(t.Context(), message("1")); err != nil {
		t.Fatal(err)
	}
	attempts, passes := r.named("attempt"), r.named("process orders")
	if len(attempts) != 1 || len(passes) != 1 {
		t.Fatalf("%d attempts and %d passes, want 1 and 1", len(attempts), len(passes))
	}
	if got := attributes(attempts[0]); got["db.response.status_code"] != "23505" ||
		got["txonce.result"] != "rolled_back" ||
		attempts[0].Parent().SpanID() != passes[0].SpanContext().SpanID() {
		t.Errorf("attempt: %v, parent %v", got, attempts[0].Parent())
	}
	got := attributes(passes[0])
	if got["txonce.outcome"] != "parked" || got["error.type"] != "permanent" ||
		passes[0].Status().Code != codes.Error || got["txonce.letter"] == "" {
		t.Errorf("pass: %v, %v", got, passes[0].Status())
	}
}

// A replay comes days later, in another trace: from its span the delivery that parked the message can be found, and the
// message's creator.
func TestSpanOfAReplay(t *testing.T) {
	r := newRig(t, telemetry.Config{})
	poisoned := true
	c := newConsumer(t, consumer.Config[tx]{
		Trace: r.Consumer(telemetry.ConsumerConfig{Name: "billing"}),
		Handle: func(context.Context, tx, *consumer.Message) error {
			if poisoned {
				return consumer.Permanent(errors.New("poison"))
			}
			return nil
		},
	})
	if err := c.Process(t.Context(), traced("1", parent)); err != nil {
		t.Fatal(err)
	}
	letters, err := c.DeadLetters(t.Context(), consumer.DeadLetterFilter{})
	if err != nil || len(letters) != 1 {
		t.Fatalf("%d letters, %v", len(letters), err)
	}
	poisoned = false
	if _, err := c.Replay(t.Context(), letters[0], consumer.Replay{}); err != nil {
		t.Fatal(err)
	}
	spans := r.named("process orders")
	if len(spans) != 2 {
		t.Fatalf("%d spans, want 2", len(spans))
	}
	parked, links := spans[0].SpanContext(), spans[1].Links()
	if len(links) != 2 || links[0].SpanContext.SpanID() != parked.SpanID() ||
		links[0].SpanContext.TraceID() != parked.TraceID() ||
		len(links[0].Attributes) != 1 || links[0].Attributes[0].Value.AsString() != letters[0].ID.String() ||
		links[1].SpanContext.SpanID().String() != "00f067aa0ba902b7" {
		t.Errorf("links: %+v; want one to %v of letter %v, and one to the creator", links, parked.SpanID(),
			letters[0].ID)
	}
}

func TestAckSpans(t *testing.T) {
	if hooks := newRig(t, telemetry.Config{}).Subscriber("kafka", "billing", "orders"); hooks.Acked != nil {
		t.Error("without Config.AckSpans a Subscriber reports each acknowledgement")
	}
	r := newRig(t, telemetry.Config{AckSpans: true})
	began := time.Now().Add(-time.Second)
	r.Subscriber("aws_sqs", "queue").Acked(t.Context(),
		driver.SourceEvent{System: "aws_sqs", Source: "queue", Message: traced("1", parent), Began: began})
	r.Subscriber("kafka", "billing", "orders").Acked(t.Context(),
		driver.SourceEvent{System: "kafka", Source: "orders", Partition: 3, Offset: 1042})
	acks, commits := r.named("ack queue"), r.named("commit orders")
	if len(acks) != 1 || len(commits) != 1 {
		t.Fatalf("%d and %d spans, want 1 and 1", len(acks), len(commits))
	}
	ack := acks[0]
	if ack.SpanKind() != trace.SpanKindClient || ack.Parent().IsValid() || !ack.StartTime().Equal(began) ||
		!ack.EndTime().After(began) ||
		len(ack.Links()) != 1 || ack.Links()[0].SpanContext.SpanID().String() != "00f067aa0ba902b7" {
		t.Errorf("ack: kind %v, parent %v, from %v to %v, links %v", ack.SpanKind(), ack.Parent(), ack.StartTime(),
			ack.EndTime(), ack.Links())
	}
	want := map[string]string{
		"messaging.system": "kafka", "messaging.operation.name": "commit", "messaging.operation.type": "settle",
		"messaging.destination.name":    "orders",
		"messaging.consumer.group.name": "billing", "messaging.destination.partition.id": "3",
		"messaging.kafka.offset": "1042",
	}
	if diff := cmp.Diff(want, attributes(commits[0])); diff != "" {
		t.Errorf("attributes of commit (-want +got):\n%s", diff)
	}
}

// recorder is an outbox.Writer.
type recorder struct {
	msgs []outbox.Message
	err  error
}

func (w *recorder) Enqueue(_ context.Context, _ tx, msgs ...outbox.Message) error {
	w.msgs = append(w.msgs, msgs...)
	return w.err
}

func TestWriter(t *testing.T) {
	r := newRig(t, telemetry.Config{System: "kafka"})
	store := &recorder{}
	w := telemetry.Writer[tx](r.Telemetry, store)
	own := map[string]string{"a": "b"}
	if err := w.Enqueue(t.Context(), nil,
		outbox.Message{ID: "1", Topic: "charges", Headers: own},
		outbox.Message{ID: "2", Topic: "charges", Headers: map[string]string{"traceparent": parent, "tracestate": "x=y"}},
	); err != nil {
		t.Fatal(err)
	}
	spans := r.named("create charges")
	if len(spans) != 1 || spans[0].SpanKind() != trace.SpanKindProducer {
		t.Fatalf("%d spans, want 1", len(spans))
	}
	sc := spans[0].SpanContext()
	want := []map[string]string{
		{"a": "b", "traceparent": fmt.Sprintf("00-%s-%s-01", sc.TraceID(), sc.SpanID())},
		{"traceparent": parent, "tracestate": "x=y"},
	}
	if diff := cmp.Diff(want, []map[string]string{store.msgs[0].Headers, store.msgs[1].Headers}); diff != "" {
		t.Errorf("headers (-want +got):\n%s", diff)
	}
	if len(own) != 1 {
		t.Errorf("the caller's headers were changed: %v", own)
	}
	store.err = errors.New("no")
	if err := w.Enqueue(t.Context(), nil, outbox.Message{ID: "3", Topic: "charges"}); !errors.Is(err, store.err) {
		t.Errorf("Enqueue: %v", err)
	}
	if span := r.named("create charges")[1]; span.Status().Code != codes.Error {
		t.Errorf("the span of a failed Enqueue has the status %v", span.Status())
	}
	if plain := telemetry.Writer[tx](nil, store); plain != outbox.Writer[tx](store) {
		t.Error("a nil Telemetry wraps the writer")
	}
}

// uniqueViolation is an error like those of drivers for PostgreSQL.
type uniqueViolation struct{}

func (uniqueViolation) Error() string    { return "ERROR: secret (SQLSTATE 23505)" }
func (uniqueViolation) SQLState() string { return "23505" }
