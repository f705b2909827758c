package main

import (
	"bytes"
	"context"
	"database/sql"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/txonce/txonce/adapters/sqlstore"
	"github.com/txonce/txonce/adapters/webhook"
	"github.com/txonce/txonce/adapters/webhook/githubhook"
	"github.com/txonce/txonce/adapters/webhook/stripehook"
	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/outbox"
	"github.com/txonce/txonce/outbox/relay"
)

// docs/webhooks.md shows Go code of this file or main.go, which compiles and is tested.
func TestDocs(t *testing.T) {
	doc, err := os.ReadFile("../../docs/webhooks.md")
	if err != nil {
		t.Fatal(err)
	}
	var code strings.Builder
	for _, name := range []string{"docs_test.go", "main.go"} {
		file, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		code.Write(file)
	}
	blocks := strings.Split(string(doc), "```go\n")[1:]
	if len(blocks) != 3 {
		t.Errorf("%d blocks of Go, want 3", len(blocks))
	}
	for _, b := range blocks {
		if b, _, _ = strings.Cut(b, "```"); !strings.Contains(code.String(), b) {
			t.Errorf("no file has this code:\n%s", b)
		}
	}
}

func stripeInline(store *sqlstore.Store, secret string, paid consumer.Handler[*sql.Tx]) (*webhook.Receiver, error) {
	verifier, err := stripehook.New(stripehook.Config{Secrets: []stripehook.Secret{{Value: secret, Mode: stripehook.Live}}})
	if err != nil {
		return nil, err
	}
	billing, err := consumer.New(consumer.Config[*sql.Tx]{
		Name: "billing", Store: store, Key: consumer.MessageID, Window: 40 * 24 * time.Hour,
		Handle: webhook.ByTopic(map[string]consumer.Handler[*sql.Tx]{"invoice.paid": paid}),
	})
	if err != nil {
		return nil, err
	}
	return webhook.New(webhook.Config{Verifier: verifier, Processor: billing})
}

func githubInbox(store *sqlstore.Store, verifier *githubhook.Verifier, publish consumer.Handler[*sql.Tx]) (*webhook.Receiver, *relay.Relay, error) {
	inbox, err := webhook.NewInbox(webhook.InboxConfig[*sql.Tx]{Name: "releases", Store: store})
	if err != nil {
		return nil, nil, err
	}
	receiver, err := webhook.New(webhook.Config{Verifier: verifier, Processor: inbox})
	if err != nil {
		return nil, nil, err
	}
	releases, err := consumer.New(consumer.Config[*sql.Tx]{
		Name: "releases", Store: store, Key: consumer.MessageID, Window: inbox.Window(), Handle: publish,
	})
	if err != nil {
		return nil, nil, err
	}
	worker, err := webhook.NewWorker(webhook.WorkerConfig{Processor: releases})
	if err != nil {
		return nil, nil, err
	}
	forward, err := relay.New(relay.Config{Queue: store, Publishers: map[string]outbox.Publisher{inbox.Topic(): worker}})
	return receiver, forward, err
}

// counting returns a handler that counts its calls, and refuses events that are not for it.
func counting(t *testing.T, calls *int, topic string) consumer.Handler[*sql.Tx] {
	return func(_ context.Context, tx *sql.Tx, msg *consumer.Message) error {
		if *calls++; msg.Topic != topic || tx == nil {
			t.Errorf("message %+v", msg)
		}
		return nil
	}
}

func openStore(t *testing.T) *sqlstore.Store {
	t.Helper()
	db, store, err := open(t.Context(), testOptions(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return store
}

func TestInvoicePaidTwice(t *testing.T) {
	paid := 0
	receiver, err := stripeInline(openStore(t), "whsec_made_up_for_this_test", counting(t, &paid, "invoice.paid"))
	if err != nil {
		t.Fatal(err)
	}
	body := stripehook.Event{ID: "evt_1", Type: "invoice.paid", Livemode: true}.Body(map[string]any{"id": "in_1", "amount_paid": 500})
	for range 2 {
		req := httptest.NewRequest(http.MethodPost, "/webhooks/stripe", bytes.NewReader(body))
		req.Header.Set("Stripe-Signature", stripehook.Sign(body, time.Now(), "whsec_made_up_for_this_test"))
		res := httptest.NewRecorder()
		receiver.ServeHTTP(res, req)
		if res.Code != 200 {
			t.Errorf("status %d, want 200", res.Code)
		}
	}
	if paid != 1 {
		t.Errorf("paid ran %d times, want 1", paid)
	}
}

// A release that is delivered twice is handled once, and its body with a new ID is parked.
func TestGithubInbox(t *testing.T) {
	const secret = "a random secret of the hook"
	verifier, err := githubhook.New(githubhook.Config{Endpoint: "releases-hook", Topic: "release", Secrets: []string{secret}})
	if err != nil {
		t.Fatal(err)
	}
	published := 0
	receiver, forward, err := githubInbox(openStore(t), verifier, counting(t, &published, "release"))
	if err != nil {
		t.Fatal(err)
	}
	body := `{"action":"published"}`
	for _, id := range []string{"1", "1", "2"} {
		req := httptest.NewRequestWithContext(t.Context(), "POST", "/", strings.NewReader(body))
		req.Header = githubhook.Sign(secret, id, "release", []byte(body))
		res := httptest.NewRecorder()
		receiver.ServeHTTP(res, req)
		if res.Code != 200 {
			t.Errorf("status %d, want 200", res.Code)
		}
	}
	if published != 0 {
		t.Errorf("%d releases were handled before the answer", published)
	}
	if _, err := forward.RunOnce(t.Context()); err != nil || published != 1 {
		t.Errorf("%d releases were handled, want 1; error %v", published, err)
	}
}
