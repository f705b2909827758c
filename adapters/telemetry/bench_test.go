package telemetry_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/txonce/txonce/adapters/telemetry"
	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/observe"
)

// pass is what a consumer calls for n messages that are new.
func pass(ctx context.Context, hooks *consumer.Trace, d *consumer.Delivery, outcomes []consumer.MessageOutcome) {
	if hooks == nil {
		return
	}
	if hooks.Start != nil {
		ctx = hooks.Start(ctx, d)
	}
	hooks.Attempt(ctx, d, consumer.Attempt{
		Messages: len(outcomes), Ran: len(outcomes), Result: observe.Committed,
		Claim: time.Millisecond, Took: 3 * time.Millisecond,
	})
	hooks.Done(ctx, d, outcomes)
}

func delivery(n int) (*consumer.Delivery, []consumer.MessageOutcome) {
	d := &consumer.Delivery{Consumer: "billing", Began: time.Now()}
	outcomes := make([]consumer.MessageOutcome, n)
	for i := range n {
		m := message(fmt.Sprint(i))
		m.Headers = map[string]string{"traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"}
		d.Messages = append(d.Messages, m)
		outcomes[i] = consumer.MessageOutcome{Outcome: observe.Processed, Key: dedup.Key{Consumer: "billing", ID: m.ID}}
	}
	return d, outcomes
}

func metricsOnly(t testing.TB) *consumer.Trace {
	t.Helper()
	tel, err := telemetry.New(telemetry.Config{MeterProvider: sdkmetric.NewMeterProvider(sdkmetric.WithReader(sdkmetric.NewManualReader()))})
	if err != nil {
		t.Fatal(err)
	}
	return tel.Consumer(telemetry.ConsumerConfig{Name: "billing", System: "kafka", Topics: []string{"orders"}})
}

// Garbage for each message would cost more than the counting.
func TestMetricsAllocateNothing(t *testing.T) {
	hooks := metricsOnly(t)
	for _, n := range []int{1, 100} {
		d, outcomes := delivery(n)
		ctx := t.Context()
		if got := testing.AllocsPerRun(200, func() { pass(ctx, hooks, d, outcomes) }); got != 0 {
			t.Errorf("%v allocations for %d messages, want 0", got, n)
		}
	}
}

func BenchmarkConsumer(b *testing.B) {
	spans := func(ratio float64) *consumer.Trace {
		tel, err := telemetry.New(telemetry.Config{TracerProvider: sdktrace.NewTracerProvider(sdktrace.WithSampler(sdktrace.TraceIDRatioBased(ratio)))})
		if err != nil {
			b.Fatal(err)
		}
		return tel.Consumer(telemetry.ConsumerConfig{Name: "billing", System: "kafka"})
	}
	for _, bench := range []struct {
		name  string
		hooks *consumer.Trace
		n     int
	}{
		{"nil", nil, 1},
		{"metrics", metricsOnly(b), 1},
		{"metrics/batch100", metricsOnly(b), 100},
		{"span/unsampled", spans(0), 1},
		{"span/sampled", spans(1), 1},
		{"span/sampled/batch100", spans(1), 100},
	} {
		b.Run(bench.name, func(b *testing.B) {
			d, outcomes := delivery(bench.n)
			ctx := b.Context()
			b.ReportAllocs()
			for b.Loop() {
				pass(ctx, bench.hooks, d, outcomes)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*bench.n), "ns/message")
		})
	}
}
