package telemetry_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/otel/codes"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.opentelemetry.io/otel/trace"

	"github.com/txonce/txonce/adapters/httpidem"
	"github.com/txonce/txonce/adapters/telemetry"
	"github.com/txonce/txonce/dedup/deduptest"
)

// shop is a Guard whose telemetry is r's.
func shop(t *testing.T, r *rig) (guard *httpidem.Guard[tx], store *deduptest.Store) {
	t.Helper()
	store = deduptest.NewStore()
	guard, err := httpidem.New(httpidem.Config[tx]{
		Name: "shop", Store: store, Secrets: [][]byte{bytes.Repeat([]byte("s"), httpidem.MinSecret)},
		Principal: func(*http.Request) (string, error) { return "canary-principal", nil },
		Logger:    slog.New(slog.DiscardHandler), Trace: r.HTTP("shop"),
	})
	if err != nil {
		t.Fatal(err)
	}
	return guard, store
}

func post(ctx context.Context, h http.Handler, key, body string) int {
	request := httptest.NewRequestWithContext(ctx, http.MethodPost, "/canary-target", strings.NewReader(body))
	request.Header.Set("Idempotency-Key", key)
	w := httptest.NewRecorder()
	h.ServeHTTP(w, request)
	return w.Code
}

// Each decision is counted, from 0, so that an alert on increase() notices the first.
func TestHTTPMetrics(t *testing.T) {
	r := newRig(t, telemetry.Config{})
	guard, store := shop(t, r)
	for set, n := range values(t, r.collect(t)["txonce.http.requests"]) {
		if n != 0 {
			t.Errorf("%s is %d before the first request", set, n)
		}
	}
	if n, ok := values(t, r.collect(t)["txonce.http.commit_unknown"])["guard=shop"]; !ok || n != 0 {
		t.Errorf("txonce.http.commit_unknown: %d, exported: %t", n, ok)
	}
	h := guard.Handle(func(_ context.Context, tx tx, w http.ResponseWriter, _ *http.Request) error {
		w.WriteHeader(http.StatusCreated)
		return tx.Add("order")
	})
	ctx := t.Context()
	post(ctx, h, "1", "a")
	post(ctx, h, "1", "a")
	post(ctx, h, "1", "b")
	post(ctx, h, "a b", "")
	store.OnCommit = func(ctx context.Context, tx *deduptest.Tx) error {
		store.OnCommit = nil
		return fmt.Errorf("%w: %w", deduptest.ErrDown, tx.Commit(ctx))
	}
	post(ctx, h, "2", "a") // its second attempt finds what became of the first
	got := map[string]int64{}
	for set, n := range values(t, r.collect(t)["txonce.http.requests"]) {
		if n > 0 {
			got[set] = n
		}
	}
	want := map[string]int64{
		"decision=new,guard=shop,reason=":                 1,
		"decision=replayed,guard=shop,reason=":            2,
		"decision=mismatched,guard=shop,reason=Mismatch":  1,
		"decision=refused,guard=shop,reason=MalformedKey": 1,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("txonce.http.requests (-want +got):\n%s", diff)
	}
	if n := values(t, r.collect(t)["txonce.http.commit_unknown"])["guard=shop"]; n != 1 {
		t.Errorf("%d unknown commits, want 1", n)
	}
	for name, want := range map[string]uint64{"txonce.http.duration": 5, "txonce.http.replay.age": 2} {
		var n uint64
		for _, p := range r.collect(t)[name].Data.(metricdata.Histogram[float64]).DataPoints {
			n += p.Count
		}
		if n != want {
			t.Errorf("%s has %d values, want %d", name, n, want)
		}
	}
}

// The span of a request is below the server's and above the handler's, and says what was decided about which key. It has
// nothing that the client has sent.
func TestHTTPSpans(t *testing.T) {
	r := newRig(t, telemetry.Config{})
	guard, _ := shop(t, r)
	ctx, server := r.tracers.Tracer("server").Start(t.Context(), "POST /orders")
	var inside trace.SpanContext
	h := guard.Handle(func(ctx context.Context, _ tx, _ http.ResponseWriter, _ *http.Request) error {
		inside = trace.SpanContextFromContext(ctx)
		return nil
	})
	post(ctx, h, "canary-key", "canary-body")
	post(ctx, h, "canary-key", "canary-body")
	post(ctx, h, "canary-key", "other")
	func() {
		defer func() { _ = recover() }()
		post(ctx, guard.Handle(func(context.Context, tx, http.ResponseWriter, *http.Request) error { panic("canary") }), "p", "")
	}()
	server.End()
	spans := r.named("httpidem shop")
	if len(spans) != 4 {
		t.Fatalf("%d spans, want 4", len(spans))
	}
	if !spans[0].SpanContext().Equal(inside) || spans[0].Parent().SpanID() != server.SpanContext().SpanID() {
		t.Errorf("the handler's span is %v, the parent %v", inside.SpanID(), spans[0].Parent().SpanID())
	}
	var decisions []string
	for _, span := range spans {
		a := attributes(span)
		decisions = append(decisions, a["txonce.decision"])
		if len(a["txonce.key"]) != 64 {
			t.Errorf("the key of the span: %q", a["txonce.key"])
		}
		if text := fmt.Sprintf("%s %v %v", span.Name(), a, span.Status()); strings.Contains(text, "canary") {
			t.Errorf("a canary: %s", text)
		}
	}
	if diff := cmp.Diff([]string{"new", "replayed", "mismatched", "panicked"}, decisions); diff != "" {
		t.Errorf("decisions (-want +got):\n%s", diff)
	}
	if attributes(spans[0])["txonce.key"] != attributes(spans[1])["txonce.key"] || attributes(spans[1])["txonce.age"] == "" {
		t.Errorf("of a replay: %v", attributes(spans[1]))
	}
	if spans[3].Status().Code != codes.Error || spans[2].Status().Code == codes.Error {
		t.Errorf("statuses: %v of a panic, %v of a mismatch", spans[3].Status(), spans[2].Status())
	}
}

func TestNilTelemetryOfHTTP(t *testing.T) {
	var none *telemetry.Telemetry
	if none.HTTP("shop") != nil || none.Webhook("stripe") != nil {
		t.Error("a nil Telemetry has hooks")
	}
}

// Counting a request costs no garbage.
func TestHTTPMetricsAllocateNothing(t *testing.T) {
	r, err := telemetry.New(telemetry.Config{
		MeterProvider: sdkmetric.NewMeterProvider(sdkmetric.WithReader(sdkmetric.NewManualReader())),
	})
	if err != nil {
		t.Fatal(err)
	}
	hooks, ctx := r.HTTP("shop"), t.Context()
	e := httpidem.Event{Guard: "shop", Decision: httpidem.Replayed, Waited: time.Second, Age: time.Minute, Took: time.Second}
	if n := testing.AllocsPerRun(200, func() { hooks.Replayed(ctx, e) }); n != 0 {
		t.Errorf("%v allocations for each request", n)
	}
}

func BenchmarkHTTP(b *testing.B) {
	r, err := telemetry.New(telemetry.Config{
		MeterProvider: sdkmetric.NewMeterProvider(sdkmetric.WithReader(sdkmetric.NewManualReader())),
	})
	if err != nil {
		b.Fatal(err)
	}
	hooks, ctx := r.HTTP("shop"), b.Context()
	e := httpidem.Event{Guard: "shop", Decision: httpidem.First, Took: time.Second}
	for b.Loop() {
		hooks.Committed(ctx, e)
	}
}
