package telemetry_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/txonce/txonce/adapters/telemetry"
	"github.com/txonce/txonce/adapters/telemetry/internal/provoke"
	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/consumer/driver"
	"github.com/txonce/txonce/consumer/ops"
	"github.com/txonce/txonce/outbox"
)

// What a message says, who it is about and how the database is reached must not leave the program through its
// telemetry.
func TestCanaries(t *testing.T) {
	r := newRig(t, provoke.Config(telemetry.Config{HideKeys: ops.HideKeys{Secret: []byte("a secret of the service")}, SpanPerMessage: true, AckSpans: true}))
	provoke.Everything(t.Context(), r.Telemetry)
	writer := telemetry.Writer[tx](r.Telemetry, &recorder{err: errors.New("canary-dsn postgres://user:canary-password@db/x")})
	c := newConsumer(t, consumer.Config[tx]{
		Trace:  r.Consumer(telemetry.ConsumerConfig{Name: "billing", System: "kafka"}),
		Tenant: func(*consumer.Message) (string, error) { return "canary-tenant", nil },
		Handle: func(ctx context.Context, tx tx, m *consumer.Message) error {
			if m.ID == "canary-key-0" {
				return tx.Add(m.ID)
			}
			out := outbox.Message{
				ID: "canary-id", Topic: "charges", OrderingKey: "canary-order", Payload: []byte("canary-payload"),
				Headers: map[string]string{"h": "canary-header"},
			}
			return consumer.Permanent(fmt.Errorf("canary-error of %s: %w", m.Payload, writer.Enqueue(ctx, tx, out)))
		},
	})
	var msgs []*consumer.Message
	for i := range 3 {
		m := message(fmt.Sprintf("canary-key-%d", i))
		// as of a source without offsets
		m.OrderingKey, m.Payload, m.Position = "canary-order", []byte("canary-payload"), "queue/"+m.ID
		m.Headers = map[string]string{"h": "canary-header", "traceparent": parent, "baggage": "user=canary-baggage"}
		msgs = append(msgs, m)
	}
	if err := errors.Join(append(c.ProcessBatch(t.Context(), msgs[:2]),
		c.Process(t.Context(), msgs[2]))...); err != nil {
		t.Fatal(err)
	}

	r.Subscriber("aws_sqs", "queue").Acked(t.Context(),
		driver.SourceEvent{System: "aws_sqs", Source: "queue", Message: msgs[0]})

	var out strings.Builder
	for _, span := range r.spans.Ended() {
		fmt.Fprintf(&out, "%s %+v %+v %+v %+v %+v\n", span.Name(), span.Attributes(), span.Events(), span.Links(),
			span.Status(), span.Resource())
	}
	for name, m := range r.collect(t) {
		fmt.Fprintf(&out, "%s %+v\n", name, m)
	}
	if n := strings.Count(out.String(), "txonce.key"); n < 3 {
		t.Errorf("%d spans with a key: the test sees nothing", n)
	}
	for line := range strings.Lines(out.String()) {
		if strings.Contains(line, "canary") {
			t.Errorf("a canary: %s", line)
		}
	}
}
