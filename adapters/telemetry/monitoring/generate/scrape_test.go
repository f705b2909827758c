package main

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	prom "github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"go.opentelemetry.io/otel/exporters/prometheus"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"

	"github.com/txonce/txonce/adapters/telemetry"
	"github.com/txonce/txonce/adapters/telemetry/internal/provoke"
)

// exporter returns a Telemetry and an endpoint that shows its metrics to Prometheus.
func exporter(t *testing.T, cfg telemetry.Config) (*telemetry.Telemetry, *httptest.Server) {
	t.Helper()
	registry := prom.NewRegistry()
	reader, err := prometheus.New(prometheus.WithRegisterer(registry), prometheus.WithoutScopeInfo())
	if err != nil {
		t.Fatal(err)
	}
	cfg.MeterProvider = sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader))
	tel, err := telemetry.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	t.Cleanup(server.Close)
	return tel, server
}

// scrape returns Prometheus' input from a program that has used each word.
func scrape(t *testing.T) string {
	t.Helper()
	tel, server := exporter(t, provoke.Config(telemetry.Config{}))
	provoke.Everything(t.Context(), tel)
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(body)
}

// The cost of a metrics backend grows with the number of series.
func TestSeriesOfAConsumer(t *testing.T) {
	n := 0
	for line := range strings.Lines(scrape(t)) {
		if !strings.HasPrefix(line, "#") && (strings.Contains(line, `consumer="billing"`) ||
			strings.Contains(line, `messaging_consumer_group_name="billing"`)) {
			n++
		}
	}
	if n > 600 || n < 300 {
		t.Errorf("%d series of a consumer in which each word has occurred, want at most 600", n)
	}
}
