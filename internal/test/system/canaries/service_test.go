package canaries

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/txonce/txonce/adapters/cli"
	"github.com/txonce/txonce/adapters/dashboard"
	"github.com/txonce/txonce/adapters/pgxstore"
	"github.com/txonce/txonce/adapters/telemetry"
	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/consumer/ops"
	"github.com/txonce/txonce/internal/test/testdb"
	"github.com/txonce/txonce/observe"
	"github.com/txonce/txonce/outbox"
	"github.com/txonce/txonce/outbox/relay"
)

// service has a store, and collects what comes out of its parts.
type service struct {
	*testing.T
	hide   ops.HideKeys
	out    *output
	log    *slog.Logger
	pool   *pgxpool.Pool
	store  *pgxstore.Store
	tel    *telemetry.Telemetry
	writer outbox.Writer[pgx.Tx]
	spans  *tracetest.SpanRecorder
	reader *sdkmetric.ManualReader
}

// output is safe for concurrent use.
type output struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.String()
}

func newService(t *testing.T) *service {
	s := &service{
		T: t, hide: ops.HideKeys{Secret: []byte("a secret of the service")}, out: &output{},
		spans: tracetest.NewSpanRecorder(), reader: sdkmetric.NewManualReader(),
	}
	s.log = slog.New(s.hide.Handler(slog.NewJSONHandler(s.out, &slog.HandlerOptions{Level: slog.LevelDebug})))
	s.pool, s.store = s.open(testdb.Tables(t, testdb.Postgres(t),
		`CREATE TABLE effects (id text PRIMARY KEY, note text)`))
	s.tel = s.telemetry(telemetry.Config{
		MeterProvider:  sdkmetric.NewMeterProvider(sdkmetric.WithReader(s.reader)),
		TracerProvider: sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(s.spans)),
		System:         "kafka", Status: s.store.Operator(), SpanPerMessage: true, AckSpans: true,
	})
	s.writer = telemetry.Writer[pgx.Tx](s.tel, s.store)
	return s
}

// open adds a password to dsn. The server of the tests does not ask for one.
func (s *service) open(dsn string) (*pgxpool.Pool, *pgxstore.Store) {
	s.Helper()
	u, err := url.Parse(dsn)
	if err != nil {
		s.Fatal("the DSN is no URL") // without err, which quotes it
	}
	u.User = url.UserPassword(u.User.Username(), password)
	pool, err := pgxpool.New(s.Context(), u.String())
	if err != nil {
		s.Fatal(err)
	}
	s.Cleanup(pool.Close)
	store, err := pgxstore.New(pgxstore.Config{Pool: pool, Logger: s.log})
	if err != nil {
		s.Fatal(err)
	}
	return pool, store
}

func (s *service) telemetry(cfg telemetry.Config) *telemetry.Telemetry {
	s.Helper()
	cfg.HideKeys, cfg.Logger = s.hide, s.log
	tel, err := telemetry.New(cfg)
	if err != nil {
		s.Fatal(err)
	}
	return tel
}

// report adds what came out of a part.
func (s *service) report(part string, what any) { fmt.Fprintf(s.out, "%s: %+v\n", part, what) }

func delivery(id string) *consumer.Message {
	return &consumer.Message{
		ID: id, Topic: "orders", OrderingKey: id, Position: "orders/" + id, Payload: []byte(payload), Time: time.Now(),
		Attempt: 1,
		Headers: map[string]string{"h": header, "traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", "baggage": "user=" + header},
	}
}

func message(topic, of string) outbox.Message {
	return outbox.Message{
		Topic: topic, OrderingKey: of + topic, Payload: []byte(payload),
		Headers: map[string]string{"h": header},
	}
}

// until calls done every few milliseconds until it returns true.
func (s *service) until(what string, done func() bool) {
	s.Helper()
	for end := time.Now().Add(time.Minute); !done(); <-time.After(10 * time.Millisecond) {
		if time.Now().After(end) {
			s.Fatalf("waited in vain: %s", what)
		}
	}
}

// replay requests that all letters are replayed, and waits until they were.
func (s *service) replay(c *consumer.Consumer[pgx.Tx], reason string) {
	s.Helper()
	action, err := s.store.Operator().Request(s.Context(), ops.Request{
		Kind: ops.Replay, Who: "ann", Reason: reason, Filter: consumer.DeadLetterFilter{Consumer: "billing"},
		Expect: -1,
	})
	if err != nil {
		s.Fatal(err)
	}
	ctx, stop := context.WithCancel(s.Context())
	ended := make(chan error, 1)
	go func() { ended <- c.RunReplays(ctx) }()
	s.until(reason, func() bool {
		found, err := s.store.Operator().Actions(s.Context(), ops.ActionFilter{ID: action.ID})
		return err == nil && len(found) == 1 && found[0].Waiting == 0
	})
	stop()
	if err := <-ended; err != nil {
		s.Error(err)
	}
}

// broker refuses messages of the topic "refused".
type broker struct{}

func (broker) Publish(_ context.Context, msgs []outbox.Message) []error {
	errs := make([]error, len(msgs))
	for i, m := range msgs {
		if m.Topic == "refused" {
			errs[i] = outbox.Permanent(errors.New("the broker refuses it"))
		}
	}
	return errs
}

// relay publishes until nothing is pending.
func (s *service) relay() {
	s.Helper()
	outgoing, err := relay.New(relay.Config{
		Name: "billing", Queue: s.store, Publisher: broker{}, Logger: s.log,
		Trace: s.tel.Relay("billing"),
	})
	if err != nil {
		s.Fatal(err)
	}
	ctx, stop := context.WithCancel(s.Context())
	ended := make(chan error, 1)
	go func() { ended <- outgoing.Run(ctx) }()
	s.until("the relay publishes", func() bool {
		status, err := s.store.Operator().Status(s.Context())
		return err == nil && status.Outbox.Pending == 0 && status.Outbox.Parked > 0
	})
	stop()
	s.report("error of the relay", <-ended)
}

// unreachable uses a database that does not answer.
func (s *service) unreachable() {
	s.Helper()
	_, store := s.open("postgres://nobody@127.0.0.1:1/none?connect_timeout=1")
	ctx, stop := context.WithTimeout(s.Context(), time.Second)
	defer stop()
	c, err := consumer.New(consumer.Config[pgx.Tx]{
		Name: "unreachable", Store: store, Key: consumer.MessageID, Logger: s.log,
		Handle: func(context.Context, pgx.Tx, *consumer.Message) error { return nil },
	})
	if err != nil {
		s.Fatal(err)
	}
	s.report("error of Start", c.Start(ctx))
	s.report("error of ProcessBatch", errors.Join(c.ProcessBatch(s.Context(), []*consumer.Message{delivery(key)})...))
	outgoing, err := relay.New(relay.Config{Name: "unreachable", Queue: store, Publisher: broker{}, Logger: s.log})
	if err != nil {
		s.Fatal(err)
	}
	working, stop := context.WithTimeout(s.Context(), time.Second)
	defer stop()
	s.report("error of the relay", outgoing.Run(working))
	reader := sdkmetric.NewManualReader()
	s.telemetry(telemetry.Config{
		MeterProvider: sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader)),
		Status:        store.Operator(),
	})
	s.report("error of Collect", reader.Collect(s.Context(), &metricdata.ResourceMetrics{}))
	s.report("status", s.command(store, "status"))
	s.pages(store, "")
}

// look reads the telemetry, the command line and the dashboard.
func (s *service) look() {
	s.Helper()
	for _, span := range s.spans.Ended() {
		s.report("span "+span.Name(), fmt.Sprint(span.Attributes(), span.Events(), span.Links(), span.Status(),
			span.Resource()))
	}
	var all metricdata.ResourceMetrics
	if err := s.reader.Collect(s.Context(), &all); err != nil {
		s.Error(err)
	}
	for _, scope := range all.ScopeMetrics {
		for _, m := range scope.Metrics {
			s.report(m.Name, m)
		}
	}
	letters, err := s.store.Operator().DeadLetters(s.Context(), consumer.DeadLetterFilter{})
	if err != nil || len(letters) != 1 || letters[0].Cause != observe.CauseExhausted {
		s.Fatalf("%d dead letters, %v; want the one that met other content at its replay", len(letters), err)
	}
	for _, l := range letters {
		s.report("error", l.Error)
	}
	actions, err := s.store.Operator().Actions(s.Context(), ops.ActionFilter{})
	if err != nil {
		s.Fatal(err)
	}
	parked, err := s.store.Operator().Outbox().Parked(s.Context(), outbox.ParkedFilter{Limit: 10})
	if err != nil || len(parked) == 0 {
		s.Fatalf("%d parked messages, %v", len(parked), err)
	}
	id := letters[0].ID.String()
	commands := [][]string{
		{"status"},
		{"explain", "billing", key + "-1"},
		{"dead-letters", "list"},
		{"dead-letters", "show", id},
		{"dead-letters", "diff", id},
		{"dead-letters", "replay", "--consumer", "billing", "--dry-run"},
		{"outbox", "list"},
		{"outbox", "show", fmt.Sprint(parked[0].Seq)},
		{"actions", "list"},
		{"actions", "show", actions[0].ID.String()},
		{"horizon", "show"},
		{"check"},
	}
	for _, args := range commands {
		s.report(strings.ReplaceAll(fmt.Sprint(args), key, "KEY"), s.command(s.store, args...))
		s.report("as JSON", s.command(s.store, append(slices.Clone(args), "--json")...))
	}
	s.pages(
		s.store, "", "consumers", "windows", "explain", "letters", "letter?id="+id, "outbox", "outbox?state=parked",
		"actions",
		"action?id="+actions[0].ID.String(), "plan",
	)
}

// command returns what a command prints.
func (s *service) command(store *pgxstore.Store, args ...string) string {
	s.Helper()
	db := stdlib.OpenDBFromPool(s.pool)
	defer db.Close()
	root := cli.New(cli.Config{HideKeys: s.hide, Open: func(context.Context, cli.Target) (*cli.Database, error) {
		return &cli.Database{Dialect: "postgres", SQL: db, Store: store}, nil
	}})
	var printed output
	root.SetOut(&printed)
	root.SetErr(&printed)
	root.SetArgs(append(args, "--hide-keys"))
	err := root.ExecuteContext(s.Context())
	return fmt.Sprintf("%s%v", &printed, err)
}

// pages reads pages of the dashboard as somebody who may view and nothing else.
func (s *service) pages(store *pgxstore.Store, paths ...string) {
	s.Helper()
	d, err := dashboard.New(dashboard.Config{
		Store: store.Operator(), Activity: store.Activity(), HideKeys: s.hide, Logger: s.log,
		Authorize: func(_ *http.Request, p dashboard.Permission) (string, error) {
			if p != dashboard.View {
				return "", errors.New("only viewing is allowed")
			}
			return "ann", nil
		},
	})
	if err != nil {
		s.Fatal(err)
	}
	defer d.Close()
	server := httptest.NewServer(d)
	defer server.Close()
	read := func(what string, response *http.Response, err error) {
		if err != nil {
			s.Fatal(err)
		}
		defer response.Body.Close()
		body, err := io.ReadAll(response.Body)
		if err != nil {
			s.Error(err)
		}
		s.report("page "+what, fmt.Sprint(response.Status, response.Header, string(body)))
	}
	for _, path := range paths {
		request, err := http.NewRequestWithContext(s.Context(), http.MethodGet, server.URL+"/"+path, http.NoBody)
		if err != nil {
			s.Fatal(err)
		}
		response, err := http.DefaultClient.Do(request)
		read(path, response, err)
	}
	if len(paths) > 1 {
		form := url.Values{"consumer": {"billing"}, "key": {key + "-1"}}
		request, err := http.NewRequestWithContext(s.Context(), http.MethodPost, server.URL+"/explain",
			strings.NewReader(form.Encode()))
		if err != nil {
			s.Fatal(err)
		}
		request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		response, err := http.DefaultClient.Do(request)
		read("explain", response, err)
	}
}
