package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/txonce/txonce/adapters/cli"
	"github.com/txonce/txonce/adapters/kafka"
	"github.com/txonce/txonce/adapters/pgxstore"
	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/internal/test/brokers/testkafka"
	"github.com/txonce/txonce/internal/test/testdb"
	"github.com/txonce/txonce/outbox"
	"github.com/txonce/txonce/outbox/relay"
)

// faulty is a publisher that drops and doubles messages that it reports as confirmed.
type faulty struct {
	outbox.Publisher
	drops, doubles string // payloads
}

func (f *faulty) Publish(ctx context.Context, msgs []outbox.Message) []error {
	var real []outbox.Message
	for _, m := range msgs {
		switch string(m.Payload) {
		case f.drops:
		case f.doubles:
			real = append(real, m, m)
		default:
			real = append(real, m)
		}
	}
	for _, err := range f.Publisher.Publish(ctx, real) {
		if err != nil {
			return slices.Repeat([]error{err}, len(msgs))
		}
	}
	return nil
}

// charging handles orders until the test ends. The handler enqueues one message per order, and a relay publishes it to
// a topic.
type charging struct {
	line    string
	brokers []string
	topic   string
	pool    *pgxpool.Pool
	store   *pgxstore.Store
	orders  *consumer.Consumer[pgx.Tx]
}

func newCharging(t *testing.T, keepSent time.Duration, drops, doubles string) *charging {
	t.Helper()
	c := &charging{line: testdb.Schema(t, testdb.Postgres(t)), brokers: testkafka.Brokers(t)}
	c.topic = testkafka.Topic(t, c.brokers, 3)
	var err error
	if c.pool, err = pgxpool.New(t.Context(), c.line); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.pool.Close)
	if err := pgxstore.Migrate(t.Context(), c.pool, ""); err != nil {
		t.Fatal(err)
	}
	if c.store, err = pgxstore.New(pgxstore.Config{Pool: c.pool, Outbox: pgxstore.OutboxConfig{KeepSent: keepSent}}); err != nil {
		t.Fatal(err)
	}
	c.orders, err = consumer.New(consumer.Config[pgx.Tx]{
		Name: "charging", Store: c.store, Key: consumer.MessageID, Logger: slog.New(slog.DiscardHandler),
		MaxPerTransaction: 1,
		Handle: func(ctx context.Context, tx pgx.Tx, m *consumer.Message) error {
			return c.store.Enqueue(ctx, tx, outbox.Message{Topic: c.topic, OrderingKey: m.ID, Payload: []byte(m.ID)})
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.orders.Close)
	client, err := sarama.NewClient(c.brokers, kafka.NewConfig())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	publisher, err := kafka.NewPublisher(kafka.PublisherConfig{Client: client})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = publisher.Close() })
	r, err := relay.New(relay.Config{
		Queue: c.store, Publisher: &faulty{publisher, drops, doubles},
		Logger: slog.New(slog.DiscardHandler), BatchSize: 50,
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return c
}

func (c *charging) handle(ctx context.Context, from, to int) error {
	for ; from < to; from++ {
		if err := c.orders.Process(ctx, delivery(fmt.Sprintf("order-%d", from), "x")); err != nil {
			return err
		}
	}
	return nil
}

func (c *charging) drain(t *testing.T) {
	t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(time.Minute); ; <-tick.C {
		st, err := c.store.Outbox().Stats(t.Context())
		if err == nil && st.Pending == 0 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("still pending after a minute: %+v, %v", st, err)
		}
	}
}

// auditOf is the JSON of an audit.
type auditOf struct {
	Audit                            string
	Checked, Lost, Repeated, Skipped int
	Whole                            bool
	Notes                            []string
	NotLookedFor                     bool `json:"lost_not_looked_for"`
	Findings                         []struct{ Kind, Key, ID, Position string }
	Error                            string // of the command
}

// audit runs txonce audit and returns its only part.
func (c *charging) audit(t *testing.T, args ...string) (a auditOf, code int) {
	t.Helper()
	var out bytes.Buffer
	cmd := cli.New(cli.Config{Open: open, Sources: sources()})
	cmd.SetArgs(append([]string{"audit", "--kafka", strings.Join(c.brokers, ","), "--published", c.topic, "--json", "--dsn", c.line}, args...))
	cmd.SetOut(&out)
	err := cmd.ExecuteContext(t.Context())
	var found struct{ Audits []auditOf }
	if json.Unmarshal(out.Bytes(), &found) != nil || len(found.Audits) != 1 {
		t.Fatalf("%q: %v", out.String(), err)
	}
	a = found.Audits[0]
	if err != nil {
		a.Error = err.Error()
	}
	return a, cli.ExitCode(err)
}

// The audit of a real topic finds messages that the topic lacks or has twice. It compares the topic with outbox_sent,
// and with IDs derived from claims.
func TestAuditPublished(t *testing.T) {
	t.Parallel()
	c := newCharging(t, time.Hour, "order-7", "order-11")
	if err := c.handle(t.Context(), 0, 40); err != nil {
		t.Fatal(err)
	}
	c.drain(t)
	for _, args := range [][]string{nil, {"--consumer", "charging", "--per-claim", "1"}} {
		a, code := c.audit(t, args...)
		if code != cli.ExitFinding || a.Audit != "outbox" || a.Checked != 40 || a.Lost != 1 || a.Repeated != 1 ||
			a.Skipped != 0 || !a.Whole || len(a.Findings) != 2 {
			t.Errorf("exit code %d, %+v", code, a)
		}
		for _, f := range a.Findings {
			want := map[string]string{"lost": "order-7", "repeated": "order-11"}[f.Kind]
			if len(args) > 0 && f.Key != want || f.ID == "" || (f.Kind == "repeated") != strings.HasPrefix(f.Position,
				c.topic+"/") {
				t.Errorf("%+v", f)
			}
		}
	}
	a, code := c.audit(t, "--consumer", "charging", "--per-claim", "1", "--since", "1h")
	if code != cli.ExitFinding || a.Checked != 0 || a.Skipped != 40 || len(a.Notes) != 1 ||
		!strings.Contains(a.Notes[0], "set --since 1h0m0s earlier") {
		t.Errorf("exit code %d, %+v", code, a)
	}
	if a, code := c.audit(t, "--since", "1ns"); code != cli.ExitFinding || a.Checked != 0 {
		t.Errorf("exit code %d, %+v", code, a)
	}
}

// An audit that cannot find lost messages is no proof that there are none, unless repeats were all that was asked for.
func TestAuditPublishedWithoutKeepSent(t *testing.T) {
	t.Parallel()
	c := newCharging(t, 0, "order-2", "")
	if err := c.handle(t.Context(), 0, 5); err != nil {
		t.Fatal(err)
	}
	c.drain(t)
	for expect, want := range map[string]int{
		"one": cli.ExitFinding, "at-least-one": cli.ExitFinding,
		"at-most-one": 0,
	} {
		if a, code := c.audit(t, "--expect", expect); code != want || a.Checked != 4 || a.Lost != 0 || !a.NotLookedFor {
			t.Errorf("%s: exit code %d, %+v", expect, code, a)
		} else if code == cli.ExitFinding && !strings.Contains(a.Error,
			"set Outbox.KeepSent in the workers' store, or give --per-claim") {
			t.Errorf("%s: %s", expect, a.Error)
		}
	}
}

// While a relay publishes, the audit finds nothing.
func TestAuditPublishedUnderLoad(t *testing.T) {
	t.Parallel()
	c := newCharging(t, time.Hour, "", "")
	if err := c.handle(t.Context(), 0, 1); err != nil {
		t.Fatal(err)
	}
	c.drain(t) // from now on, outbox_sent has a message
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	var handled atomic.Int64
	done := make(chan error, 1)
	go func() {
		for i := 1; ctx.Err() == nil; i++ {
			if err := c.handle(ctx, i, i+1); err != nil && ctx.Err() == nil {
				done <- err
				return
			}
			handled.Add(1)
		}
		done <- nil
	}()
	for pass := 0; ctx.Err() == nil && (pass < 6 || handled.Load() < 500); pass++ {
		args := []string{}
		if pass%2 == 1 {
			args = []string{"--consumer", "charging", "--per-claim", "1"}
		}
		if a, code := c.audit(t, args...); code != cli.ExitFine && a.Checked > 0 || a.Lost+a.Repeated > 0 {
			t.Errorf("pass %d: exit code %d, %+v", pass, code, a)
		}
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if n := handled.Load(); n < 500 {
		t.Errorf("%d orders were handled", n)
	}
}
