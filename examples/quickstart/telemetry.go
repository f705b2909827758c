package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	prom "github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"go.opentelemetry.io/otel/exporters/prometheus"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"

	"github.com/txonce/txonce/adapters/telemetry"
	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/observe"
)

// A service gives telemetry's hooks to its consumer. The workers of the demo are killed, and Prometheus would lose what
// a killed process has counted since its last scrape. So each worker reports the calls of its hooks to the demo, which
// counts for all of them.

// pass is a call of the hook Done.
type pass struct {
	Took     time.Duration      `json:"took"`
	Outcomes []passed           `json:"outcomes"`
	Attempts []consumer.Attempt `json:"attempts,omitempty"` // without their errors
}

type passed struct {
	Outcome observe.Outcome `json:"o"`
	Cause   observe.Cause   `json:"c,omitempty"`
}

type attemptsKey struct{}

// forward returns hooks that add each pass to the next report.
func (r *reporter) forward() *consumer.Trace {
	return &consumer.Trace{
		Start: func(ctx context.Context, _ *consumer.Delivery) context.Context {
			return context.WithValue(ctx, attemptsKey{}, new([]consumer.Attempt))
		},
		Attempt: func(ctx context.Context, _ *consumer.Delivery, a consumer.Attempt) {
			a.Err = nil
			if all, ok := ctx.Value(attemptsKey{}).(*[]consumer.Attempt); ok {
				*all = append(*all, a)
			}
		},
		Done: func(ctx context.Context, d *consumer.Delivery, outcomes []consumer.MessageOutcome) {
			p := pass{Took: time.Since(d.Began)}
			for _, o := range outcomes {
				p.Outcomes = append(p.Outcomes, passed{o.Outcome, o.Cause})
			}
			if all, ok := ctx.Value(attemptsKey{}).(*[]consumer.Attempt); ok {
				p.Attempts = *all
			}
			r.mu.Lock()
			defer r.mu.Unlock()
			r.passes = append(r.passes, p)
		},
	}
}

// metrics serves what all workers have done to Prometheus. nil: without -telemetry.
type metrics struct {
	hooks    *consumer.Trace
	listener net.Listener
}

// ordersTopic is the topic of the orders in metrics. The real topic or queue has another name in each run.
const ordersTopic = "orders"

// serveMetrics listens on address until ctx ends.
func serveMetrics(ctx context.Context, address string) (*metrics, error) {
	registry := prom.NewRegistry()
	reader, err := prometheus.New(prometheus.WithRegisterer(registry), prometheus.WithoutScopeInfo())
	if err != nil {
		return nil, err
	}
	tel, err := telemetry.New(telemetry.Config{MeterProvider: sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader))})
	if err != nil {
		return nil, err
	}
	m := &metrics{hooks: tel.Consumer(telemetry.ConsumerConfig{Name: "billing", Topics: []string{ordersTopic}})}
	if m.listener, err = (&net.ListenConfig{}).Listen(ctx, "tcp", address); err != nil {
		return nil, fmt.Errorf("-telemetry: %w", err)
	}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	go func() { _ = server.Serve(m.listener) }() // until close
	context.AfterFunc(ctx, func() { _ = server.Close() })
	return m, nil
}

func (m *metrics) url() string { return fmt.Sprintf("http://%s/metrics", m.listener.Addr()) }

// report counts what a worker has reported.
func (m *metrics) report(ctx context.Context, r report) {
	if m == nil {
		return
	}
	for _, p := range r.Passes {
		d := &consumer.Delivery{Consumer: "billing", Began: time.Now().Add(-p.Took)}
		outcomes := make([]consumer.MessageOutcome, len(p.Outcomes))
		for i, o := range p.Outcomes {
			d.Messages = append(d.Messages, &consumer.Message{Topic: ordersTopic})
			outcomes[i] = consumer.MessageOutcome{Outcome: o.Outcome, Cause: o.Cause}
		}
		ctx := m.hooks.Start(ctx, d)
		for _, a := range p.Attempts {
			m.hooks.Attempt(ctx, d, a)
		}
		m.hooks.Done(ctx, d, outcomes)
	}
}

// scraped are the counters that Prometheus would read.
type scraped struct {
	Processed  int `json:"processed"`
	Duplicates int `json:"duplicates"`
	Parked     int `json:"parked"`
}

// scrape reads the counters as Prometheus does.
func (m *metrics) scrape(ctx context.Context) (s scraped, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, m.url(), http.NoBody)
	if err != nil {
		return s, err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return s, err
	}
	defer func() { err = errors.Join(err, response.Body.Close()) }()
	into := map[observe.Outcome]*int{
		observe.Processed: &s.Processed, observe.Duplicate: &s.Duplicates,
		observe.Parked: &s.Parked,
	}
	lines := bufio.NewScanner(response.Body)
	for lines.Scan() {
		series, value, _ := strings.Cut(lines.Text(), "} ")
		if !strings.HasPrefix(series, "txonce_deliveries_total{") {
			continue
		}
		n, err := strconv.ParseFloat(value, 64)
		if err != nil {
			return s, err
		}
		for outcome, sum := range into {
			if strings.Contains(series, fmt.Sprintf("outcome=%q", outcome)) {
				*sum += int(n)
			}
		}
	}
	return s, lines.Err()
}
