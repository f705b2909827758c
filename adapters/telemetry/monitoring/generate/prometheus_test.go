package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	_ "github.com/jackc/pgx/v5/stdlib" // registers "pgx", which testdb takes

	"github.com/txonce/txonce/adapters/pgxstore"
	"github.com/txonce/txonce/adapters/telemetry"
	"github.com/txonce/txonce/internal/test/testdb"
	"github.com/txonce/txonce/outbox"
	"github.com/txonce/txonce/outbox/relay"
)

// confirming is a broker that confirms everything.
type confirming struct{}

func (confirming) Publish(context.Context, []outbox.Message) []error { return nil }

// A relay that has stopped is noticed: from the outbox in PostgreSQL through the exporter to the alert of a real
// Prometheus. Minutes are seconds here.
func TestStoppedRelayFires(t *testing.T) {
	t.Parallel()
	pool, err := pgxpool.New(t.Context(), testdb.Schema(t, testdb.Postgres(t)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	if err := pgxstore.Migrate(t.Context(), pool, ""); err != nil {
		t.Fatal(err)
	}
	store, err := pgxstore.New(pgxstore.Config{Pool: pool})
	if err != nil {
		t.Fatal(err)
	}
	tel, server := exporter(t, telemetry.Config{Status: store.Operator()})
	enqueue := func(id string) {
		tx, err := pool.Begin(t.Context())
		if err == nil {
			err = store.Enqueue(t.Context(), tx, outbox.Message{ID: id, Topic: "charges"})
		}
		if err == nil {
			err = tx.Commit(t.Context())
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	quiet := slog.New(slog.DiscardHandler)
	running, err := relay.New(relay.Config{
		Queue: store, Publisher: confirming{}, Logger: quiet,
		Trace: tel.Relay("billing"),
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- running.Run(ctx) }()
	enqueue("1")
	await(t, "the relay to empty the outbox", func() bool {
		stats, err := store.Outbox().Stats(t.Context())
		return err == nil && stats.Pending == 0
	})
	prometheus := startPrometheus(t, strings.TrimPrefix(server.URL, "http://"))
	await(t, "Prometheus to scrape", func() bool { return len(query(t, prometheus, "txonce_outbox_pending")) > 0 })
	if firing := query(t, prometheus, `ALERTS{alertname="OutboxStuck",alertstate="firing"}`); len(firing) > 0 {
		t.Errorf("OutboxStuck fires while a relay runs: %v", firing)
	}
	stop()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	enqueue("2")
	await(t, "both alerts OutboxStuck", func() bool {
		severities := map[string]bool{}
		for _, labels := range query(t, prometheus,
			`ALERTS{alertname="OutboxStuck",alertstate="firing",topic="charges"}`) {
			severities[labels["severity"]] = true
		}
		return severities[ticket] && severities[page]
	})
}

func await(t *testing.T, what string, done func() bool) {
	t.Helper()
	for deadline := time.After(2 * time.Minute); !done(); {
		select {
		case <-deadline:
			t.Fatalf("waited two minutes for %s", what)
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// startPrometheus starts a Prometheus with the rules, whose minutes are seconds, and returns its address.
func startPrometheus(t *testing.T, target string) string {
	t.Helper()
	dir := t.TempDir()
	fast := append([]alert(nil), alerts...)
	for i := range fast {
		fast[i].wait = strings.Replace(fast[i].wait, "m", "s", 1)
		fast[i].expr = strings.NewReplacer("age_seconds) > 60", "age_seconds) > 1", "age_seconds) > 300",
			"age_seconds) > 5").Replace(fast[i].expr)
	}
	for name, content := range map[string]string{
		"rules.yml": rulesYAML(records, fast),
		"prometheus.yml": fmt.Sprintf("global: {scrape_interval: 500ms, evaluation_interval: 500ms}\nrule_files: [rules.yml]\n"+
			"scrape_configs:\n- job_name: worker\n  static_configs: [{targets: [%q]}]\n", target),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	port, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := port.Addr().String()
	if err := port.Close(); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	cmd := exec.CommandContext(ctx, testdb.Prometheus(t).Server, "--config.file=prometheus.yml",
		"--storage.tsdb.path=data", "--web.listen-address="+address)
	cmd.Dir = dir
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		stop()
		_ = cmd.Wait() // it was killed
		if out, err := os.ReadFile(log.Name()); err == nil && t.Failed() {
			t.Logf("Prometheus's log:\n%s", out)
		}
	})
	return address
}

// query returns the labels of each series that expr finds; none if Prometheus does not answer yet.
func query(t *testing.T, address, expr string) (found []map[string]string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+address+"/api/v1/query",
		strings.NewReader("query="+expr))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode != http.StatusOK {
		return nil
	}
	var answer struct {
		Data struct {
			Result []struct {
				Metric map[string]string
			}
		}
	}
	if err := json.Unmarshal(body, &answer); err != nil {
		t.Fatalf("%v: %s", err, body)
	}
	for _, r := range answer.Data.Result {
		found = append(found, r.Metric)
	}
	return found
}
