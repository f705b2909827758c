package telemetry

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"

	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/txonce/txonce/consumer/ops"
	"github.com/txonce/txonce/internal/usercode"
)

// Config configures a Telemetry. At least one provider is required.
type Config struct {
	// MeterProvider makes the instruments. nil: no metrics.
	MeterProvider metric.MeterProvider

	// TracerProvider makes the spans. nil: no spans, and messages of the outbox carry no trace context.
	TracerProvider trace.TracerProvider

	// System is the broker, as OpenTelemetry names it: "kafka", "aws_sqs", "rabbitmq". It is the attribute
	// messaging.system of consumers that name no other, and of relays. Empty: there is no such attribute.
	System string

	// Status is asked for the gauges of the database, such as the age of the oldest message of the outbox:
	// store.Operator(). It is asked while metrics are collected, at most once in ten seconds. When it fails, those
	// gauges are absent, and an alert must notice that.
	//
	// Defaults to none: there are no such gauges.
	Status ops.StatusReader

	// Pools are the connection pools to report, by name. For pgxpool: func() (used, max int) { s := pool.Stat(); return
	// int(s.AcquiredConns()), int(s.MaxConns()) }. The functions must be safe for concurrent use.
	Pools map[string]func() (used, max int)

	// SpanPerMessage makes a span for each message of a batch, as a child of the span of the batch. It costs about as
	// much again per message as a message that is handled alone.
	SpanPerMessage bool

	// AckSpans makes a span "ack QUEUE" for each message that a Subscriber of SQS or RabbitMQ acknowledges, and a span
	// "commit TOPIC" for each offset that one of Kafka marks; sarama commits marked offsets in the background. The
	// spans link to those that created the messages, except with Kafka, where a mark stands for all messages before it.
	AckSpans bool

	// ParentFromMessage makes the span of a message that is handled alone a child of the span that created the message,
	// so that both are in one trace. Otherwise the span links to its creator. A message that is delivered again after
	// days then lengthens a trace of days ago.
	ParentFromMessage bool

	// HideKeys replaces keys and message IDs in spans by a keyed hash, where keys name people. Metrics never have keys.
	//
	// Defaults to keys as they are.
	HideKeys ops.HideKeys

	// Logger gets one line a minute while Status fails.
	//
	// Defaults to slog.Default().
	Logger *slog.Logger
}

// Telemetry exports what consumers, relays, sweepers, subscribers, Guards and webhook receivers do. Its methods return hooks. All of them may be
// called on a nil *Telemetry and then return nil hooks, which cost nothing. It is safe for concurrent use.
type Telemetry struct {
	cfg    Config
	tracer trace.Tracer // nil: no spans
	meters *meters      // nil: no metrics

	pauses pauses
	losses losses
	audits audits
	status *snapshots
	sends  *limited[*sentCells]

	mu        sync.Mutex // guards what follows
	consumers map[string]*consumerTrace
	relays    map[string]*relayTrace
	sources   map[sourceKey]*cell
	guards    map[string]*guardTrace
	webhooks  map[string]*webhookTrace
	sweep     *sweepTrace
}

// New returns a Telemetry, or an error that names what is invalid. Call Close when the program ends.
func New(cfg Config) (*Telemetry, error) {
	if cfg.MeterProvider == nil && cfg.TracerProvider == nil {
		return nil, errors.New("telemetry: Config.MeterProvider or Config.TracerProvider is required")
	}
	if cfg.MeterProvider == nil && (cfg.Status != nil || len(cfg.Pools) > 0) {
		return nil, errors.New("telemetry: Config.Status and Config.Pools have no effect without Config.MeterProvider")
	}
	if cfg.TracerProvider == nil && (cfg.AckSpans || cfg.SpanPerMessage || cfg.ParentFromMessage) {
		return nil, errors.New("telemetry: Config.AckSpans, SpanPerMessage and ParentFromMessage have no effect without Config.TracerProvider")
	}
	for name, stat := range cfg.Pools {
		if stat == nil {
			return nil, fmt.Errorf("telemetry: Config.Pools[%q] is nil", name)
		}
	}
	cfg.Logger = usercode.Logger(cfg.Logger)
	t := &Telemetry{
		cfg: cfg, consumers: map[string]*consumerTrace{}, relays: map[string]*relayTrace{},
		sources: map[sourceKey]*cell{}, guards: map[string]*guardTrace{}, webhooks: map[string]*webhookTrace{},
		status: newSnapshots(cfg.Status, cfg.Logger),
	}
	t.sends = newLimited(t.newSentCells)
	if cfg.TracerProvider != nil {
		t.tracer = cfg.TracerProvider.Tracer(scopeName, trace.WithSchemaURL(schemaURL))
	}
	if cfg.MeterProvider != nil {
		var err error
		if t.meters, err = newMeters(cfg.MeterProvider); err == nil {
			err = t.meters.register(t.observe)
		}
		if err != nil {
			return nil, fmt.Errorf("telemetry: %w", err)
		}
	}
	return t, nil
}

// Close ends the export of counters and gauges. Hooks may still be called. Collect metrics a last time before.
func (t *Telemetry) Close() error {
	if t == nil || t.meters == nil {
		return nil
	}
	return t.meters.registration.Unregister()
}

// observe is called by the SDK when metrics are collected.
func (t *Telemetry) observe(ctx context.Context, o metric.Observer) error {
	m := t.meters
	t.observeStatus(ctx, o) // may wait for the database
	t.observePools(o)
	t.audits.observe(o, m)
	t.pauses.observe(o, m.paused)
	t.losses.observe(o, m.databaseLosses)
	for _, topic := range t.sends.all() {
		for i := range topic.sent {
			topic.sent[i].observe(o, m.sentMessages)
		}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, c := range t.consumers {
		c.observe(o, m)
	}
	for _, r := range t.relays {
		r.observe(o, m)
	}
	for _, c := range t.sources {
		c.observe(o, m.sourceEvents)
	}
	for _, g := range t.guards {
		g.observe(o, m)
	}
	for _, w := range t.webhooks {
		w.observe(o, m)
	}
	if t.sweep != nil {
		t.sweep.rows.observe(o, m.sweepRows)
	}
	return nil
}
