package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/txonce/txonce/adapters/webhook/stripehook"
	"github.com/txonce/txonce/examples/internal/webhookdemo"
	"github.com/txonce/txonce/internal/test/testdb"
)

// The demo succeeds, and docs/webhooks.md shows what it prints.
func TestDemo(t *testing.T) {
	t.Run("SQLite", func(t *testing.T) { testDemo(t, options{}) })
	t.Run("PostgreSQL", func(t *testing.T) {
		o := options{postgres: testdb.Schema(t, testdb.Postgres(t))}
		testDemo(t, o)
		testDemo(t, o) // the first one's events are still in the database
	})
}

func testDemo(t *testing.T, o options) {
	t.Helper()
	var out bytes.Buffer
	o.out = &out
	if err := demo(t.Context(), o); err != nil {
		t.Errorf("%v\n%s", err, &out)
	}
	doc, err := os.ReadFile("../../docs/webhooks.md")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(doc), "```\n"+out.String()+"```") {
		t.Errorf("docs/webhooks.md shows other output than\n%s", &out)
	}
}

// The audit notices each kind of wrong result.
func TestAudit(t *testing.T) {
	for _, c := range []struct{ name, change, want string }{
		{"nothing wrong", `SELECT 1`, ""},
		{
			"a payment twice", `INSERT INTO payments SELECT * FROM payments WHERE invoice_id = 'in_1'`,
			"2 payment of invoice 1, want 1",
		},
		{"a lost payment", `DELETE FROM payments WHERE invoice_id = 'in_2'`, "0 payment of invoice 2, want 1"},
		{
			"a forged payment", `INSERT INTO payments VALUES ('evt_run_4', 'in_4', 5)`,
			"1 payments that Stripe did not announce, want 0",
		},
		{
			"an older state of the subscription", `UPDATE subscription_states SET status = 'past_due'`,
			"0 canceled subscription, want 1",
		},
		{"a lost dead letter", `DELETE FROM dead_letters`, "0 parked event, want 1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := testOptions(t)
			s := testSender()
			if err := serve(t.Context(), o, s.deliver); err != nil {
				t.Fatal(err)
			}
			db, _, err := open(t.Context(), o)
			if err != nil {
				t.Fatal(err)
			}
			defer db.Close()
			if _, err := db.ExecContext(t.Context(), c.change); err != nil {
				t.Fatal(err)
			}
			s.audit(t.Context(), o)
			if got := fmt.Sprint(s.Wrong); c.want == "" && len(s.Wrong) > 0 || !strings.Contains(got, c.want) {
				t.Errorf("wrong: %v, want %q", got, c.want)
			}
		})
	}
}

// Whatever the order of its events, a subscription has the state of the latest one.
func TestSubscriptionEventsInAnyOrder(t *testing.T) {
	type event struct {
		kind, status string
		seconds      int
	}
	events := []event{
		{"created", "incomplete", 1},
		{"updated", "active", 1}, // in the same second
		{"updated", "past_due", 2},
		{"deleted", "canceled", 3},
	}
	o := testOptions(t)
	err := serve(t.Context(), o, func(ctx context.Context, url string) {
		for run, order := range permutations(len(events)) {
			s := &sender{&webhookdemo.Sender{Out: io.Discard, Run: fmt.Sprint("run", run)}}
			for _, i := range order {
				body := s.subscription(events[i].kind, events[i].status, events[i].seconds)
				s.Send(ctx, url, "event", body, signature(body, time.Now(), demoSecret), 200)
			}
			if err := s.Err(); err != nil {
				t.Fatal(err)
			}
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	db, _, err := open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	var all, canceled int
	if err := db.QueryRow(`SELECT count(*), sum(status = 'canceled') FROM subscription_states`).Scan(&all, &canceled); err != nil {
		t.Fatal(err)
	}
	if all != 24 || canceled != all {
		t.Errorf("%d of %d subscriptions are canceled, want 24 of 24", canceled, all)
	}
}

// permutations returns all orders of n things.
func permutations(n int) (orders [][]int) {
	if n == 0 {
		return [][]int{nil}
	}
	for _, order := range permutations(n - 1) {
		for at := range n {
			orders = append(orders, slices.Insert(slices.Clone(order), at, n-1))
		}
	}
	return orders
}

// The backfill fetches an event that no webhook delivered, and does nothing with one that was delivered.
func TestBackfill(t *testing.T) {
	o := testOptions(t)
	s := testSender()
	listed := make(chan struct{}, 100)
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		data := []json.RawMessage{s.invoice(2, nil), s.invoice(1, nil)}
		_ = json.NewEncoder(w).Encode(map[string]any{"object": "list", "data": data, "has_more": false})
		listed <- struct{}{}
	}))
	defer api.Close()
	o.apiKey, o.apiURL = "rk_test_of_the_tests", api.URL
	err := serve(t.Context(), o, func(ctx context.Context, url string) {
		first := s.invoice(1, nil)
		s.Send(ctx, url, "invoice 1", first, signature(first, time.Now(), demoSecret), 200)
		<-listed
		waitForPayments(t, o, 2)
	})
	if err != nil || len(s.Wrong) > 0 {
		t.Error(err, s.Wrong)
	}
}

// waitForPayments waits until there are want payments of different events, and fails if an event has two.
func waitForPayments(t *testing.T, o options, want int) {
	t.Helper()
	db, _, err := open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	for deadline := time.After(time.Minute); ; {
		var payments, events int
		if err := db.QueryRowContext(t.Context(), `SELECT count(*), count(DISTINCT event_id) FROM payments`).Scan(&payments, &events); err != nil {
			t.Fatal(err)
		}
		if payments != events {
			t.Fatalf("%d payments of %d events", payments, events)
		}
		if events == want {
			return
		}
		select {
		case <-deadline:
			t.Fatalf("%d payments, want %d", payments, want)
		case <-time.After(10 * time.Millisecond):
		}
	}
}

func testOptions(t *testing.T) options {
	return options{
		listen: "127.0.0.1:0", sqlite: filepath.Join(t.TempDir(), "test.db"), secret: demoSecret, mode: stripehook.Test,
		logger: slog.New(slog.DiscardHandler),
	}
}

func testSender() *sender { return &sender{&webhookdemo.Sender{Out: io.Discard, Run: "run"}} }
