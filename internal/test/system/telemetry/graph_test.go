package telemetry_test

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	_ "github.com/jackc/pgx/v5/stdlib" // registers "pgx", which testdb takes
	"go.opentelemetry.io/otel/trace"
	"golang.org/x/sync/errgroup"

	"github.com/txonce/txonce/adapters/kafka"
	"github.com/txonce/txonce/adapters/pgxstore"
	"github.com/txonce/txonce/adapters/telemetry"
	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/internal/test/brokers/testkafka"
	"github.com/txonce/txonce/internal/test/testdb"
	"github.com/txonce/txonce/outbox"
	"github.com/txonce/txonce/outbox/relay"
)

// An order's spans, from its producer through a handler, the outbox, the relay and Kafka to the next consumer, are one
// graph of parents and links.
func TestOneGraphThroughTheOutbox(t *testing.T) {
	pool, err := pgxpool.New(t.Context(), testdb.Schema(t, testdb.Postgres(t)))
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	if err := pgxstore.Migrate(t.Context(), pool, ""); err != nil {
		t.Fatal(err)
	}
	brokers := testkafka.Brokers(t)
	orders, charges := testkafka.Topic(t, brokers, 1), testkafka.Topic(t, brokers, 1)
	client, err := sarama.NewClient(brokers, kafka.NewConfig())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	store, err := pgxstore.New(pgxstore.Config{Pool: pool})
	if err != nil {
		t.Fatal(err)
	}
	r := newRig(t, telemetry.Config{System: "kafka", Status: store.Operator()})
	writer := telemetry.Writer[pgx.Tx](r.Telemetry, store)

	quiet := slog.New(slog.DiscardHandler)
	subscribe := func(name, topic string, handle consumer.Handler[pgx.Tx]) *kafka.Subscriber {
		c, err := consumer.New(consumer.Config[pgx.Tx]{
			Name: name, Store: store, Key: consumer.JSONKey("id"), Handle: handle, Logger: quiet,
			Trace: r.Consumer(telemetry.ConsumerConfig{Name: name, Topics: []string{topic}}),
		})
		if err != nil {
			t.Fatal(err)
		}
		s, err := kafka.NewSubscriber(kafka.SubscriberConfig{
			Client: client, Group: name + topic, Topics: []string{topic}, Processor: c, Logger: quiet,
			Trace: r.Subscriber("kafka", name+topic, topic),
		})
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	billing := subscribe("billing", orders, func(ctx context.Context, tx pgx.Tx, _ *consumer.Message) error {
		return writer.Enqueue(ctx, tx, outbox.Message{Topic: charges, OrderingKey: "k", Payload: []byte(`{"id":"charge-1"}`)})
	})
	mailer := subscribe("mailer", charges, func(context.Context, pgx.Tx, *consumer.Message) error { return nil })
	publisher, err := kafka.NewPublisher(kafka.PublisherConfig{Client: client})
	if err != nil {
		t.Fatal(err)
	}
	defer publisher.Close()
	outgoing, err := relay.New(relay.Config{Queue: store, Publisher: publisher, Logger: quiet, Trace: r.Relay("billing")})
	if err != nil {
		t.Fatal(err)
	}

	producer, err := sarama.NewSyncProducerFromClient(client)
	if err != nil {
		t.Fatal(err)
	}
	defer producer.Close()
	if _, _, err := producer.SendMessage(&sarama.ProducerMessage{
		Topic: orders, Value: sarama.StringEncoder(`{"id":"order-1"}`),
		Headers: []sarama.RecordHeader{{Key: []byte("traceparent"), Value: []byte(parent)}},
	}); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithTimeout(t.Context(), 2*time.Minute)
	defer stop()
	running, ctx := errgroup.WithContext(ctx)
	running.Go(func() error { return billing.Run(ctx) })
	running.Go(func() error { return mailer.Run(ctx) })
	running.Go(func() error { return outgoing.Run(ctx) })
	for len(r.named("process "+charges)) == 0 && ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-time.After(10 * time.Millisecond):
		}
	}
	stop()
	if err := running.Wait(); err != nil {
		t.Fatal(err)
	}

	// names has the neighbours of each span by what they are to it.
	names := map[trace.SpanID]string{spanID(t, "00f067aa0ba902b7"): "the order's producer"}
	for _, span := range r.spans.Ended() {
		name, _, _ := strings.Cut(span.Name(), " ")
		if strings.HasSuffix(span.Name(), charges) {
			name += " charges"
		}
		names[span.SpanContext().SpanID()] = name
	}
	edges := map[string]int{}
	for _, span := range r.spans.Ended() {
		name := names[span.SpanContext().SpanID()]
		if span.Parent().IsValid() {
			edges[name+" is a child of "+names[span.Parent().SpanID()]]++
		}
		for _, link := range span.Links() {
			edges[name+" links to "+names[link.SpanContext.SpanID()]]++
		}
	}
	for _, want := range []string{
		"process links to the order's producer", "create charges is a child of process",
		"send charges links to create charges",
		"process charges links to create charges",
	} {
		if edges[want] == 0 {
			t.Errorf("no span %q", want)
		}
	}
	if len(edges) != 4 {
		t.Errorf("edges: %v", edges)
	}
	metrics := r.collect(t)
	if n := values(t, metrics["messaging.client.sent.messages"])["messaging.destination.name="+charges+
		",messaging.operation.name=send,messaging.system=kafka"]; n != 1 {
		t.Errorf("%d messages sent, want 1", n)
	}
	if _, ok := metrics["txonce.sweep.lag"]; !ok {
		t.Error("there are no gauges of the database")
	}
}

func spanID(t *testing.T, hex string) trace.SpanID {
	t.Helper()
	id, err := trace.SpanIDFromHex(hex)
	if err != nil {
		t.Fatal(err)
	}
	return id
}
