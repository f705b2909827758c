package telemetry_test

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"testing"

	"go.opentelemetry.io/otel/attribute"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/txonce/txonce/adapters/telemetry"
	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/consumer/consumertest"
	"github.com/txonce/txonce/dedup/deduptest"
)

type tx = *deduptest.Tx

// rig is a Telemetry whose metrics and spans the test reads.
type rig struct {
	*telemetry.Telemetry
	reader *sdkmetric.ManualReader
	spans  *tracetest.SpanRecorder

	tracers *sdktrace.TracerProvider
}

func newRig(t testing.TB, cfg telemetry.Config) *rig {
	t.Helper()
	r := &rig{reader: sdkmetric.NewManualReader(), spans: tracetest.NewSpanRecorder()}
	cfg.MeterProvider = sdkmetric.NewMeterProvider(sdkmetric.WithReader(r.reader))
	r.tracers = sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(r.spans))
	cfg.TracerProvider = r.tracers
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	var err error
	if r.Telemetry, err = telemetry.New(cfg); err != nil {
		t.Fatal(err)
	}
	return r
}

// collect returns the metrics by name.
func (r *rig) collect(t testing.TB) map[string]metricdata.Metrics {
	t.Helper()
	var all metricdata.ResourceMetrics
	if err := r.reader.Collect(context.Background(), &all); err != nil {
		t.Fatal(err)
	}
	found := map[string]metricdata.Metrics{}
	for _, scope := range all.ScopeMetrics {
		for _, m := range scope.Metrics {
			found[m.Name] = m
		}
	}
	return found
}

// values returns the values of an integer metric by its attributes, such as "cause=panic,consumer=billing".
func values(t testing.TB, m metricdata.Metrics) map[string]int64 {
	t.Helper()
	var points []metricdata.DataPoint[int64]
	switch data := m.Data.(type) {
	case metricdata.Sum[int64]:
		points = data.DataPoints
	case metricdata.Gauge[int64]:
		points = data.DataPoints
	default:
		t.Fatalf("%s: %T", m.Name, m.Data)
	}
	found := map[string]int64{}
	for _, p := range points {
		found[labels(p.Attributes)] = p.Value
	}
	return found
}

func labels(set attribute.Set) string {
	var all []string
	for _, kv := range set.ToSlice() {
		all = append(all, string(kv.Key)+"="+kv.Value.String())
	}
	return strings.Join(all, ",")
}

// attributes returns a span's attributes.
func attributes(span sdktrace.ReadOnlySpan) map[string]string {
	found := map[string]string{}
	for _, kv := range span.Attributes() {
		found[string(kv.Key)] = kv.Value.String()
	}
	return found
}

func newConsumer(t testing.TB, cfg consumer.Config[tx]) *consumer.Consumer[tx] {
	t.Helper()
	cfg.Name, cfg.Key = "billing", consumer.MessageID
	cfg.Logger = slog.New(slog.DiscardHandler)
	if cfg.Store == nil {
		cfg.Store = consumertest.NewStore()
	}
	if cfg.Handle == nil && cfg.HandleBatch == nil {
		cfg.Handle = func(_ context.Context, tx tx, m *consumer.Message) error { return tx.Add(m.ID) }
	}
	c, err := consumer.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func message(id string) *consumer.Message {
	return &consumer.Message{
		ID: id, Topic: "orders", Position: "orders/0/" + id, Payload: []byte("payload"),
		Attempt: 1,
	}
}

func sorted[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

const parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"

// named returns the ended spans of that name.
func (r *rig) named(name string) (found []sdktrace.ReadOnlySpan) {
	for _, span := range r.spans.Ended() {
		if span.Name() == name {
			found = append(found, span)
		}
	}
	return found
}
