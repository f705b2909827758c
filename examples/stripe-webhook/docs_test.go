package main

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/txonce/txonce/adapters/sqlstore"
	"github.com/txonce/txonce/adapters/webhook"
	"github.com/txonce/txonce/adapters/webhook/applehook"
	"github.com/txonce/txonce/adapters/webhook/githubhook"
	"github.com/txonce/txonce/adapters/webhook/stripehook"
	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/dedup"
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
	if len(blocks) != 4 {
		t.Errorf("%d blocks of Go, want 4", len(blocks))
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

// subscriptionEnded is a handler for customer.subscription.deleted. stripehook.Parse reads what all events have.
func subscriptionEnded(ctx context.Context, tx *sql.Tx, msg *consumer.Message) error {
	event, err := stripehook.Parse(msg.Payload)
	if err != nil {
		return consumer.Permanent(err) // parked now: it would fail each time
	}
	if event.Thin {
		return consumer.Permanent(errors.New("a thin event has no copy of the subscription: fetch it with stripehook.Client"))
	}
	// Stripe sends events in any order, so a change that is older than the one in the row is left out.
	_, err = tx.ExecContext(ctx, `UPDATE subscriptions SET active = false, changed = $1 WHERE id = $2 AND changed < $1`, event.Created.Unix(), event.Object)
	return err // not nil: rolled back, the response is 503, and Stripe delivers the event again
}

// renewed is a handler for Apple's DID_RENEW. applehook.Decode reads a notification; its parts are nil when Apple did not send them.
func renewed(ctx context.Context, tx *sql.Tx, msg *consumer.Message) error {
	n, err := applehook.Decode(msg)
	if err != nil {
		return err // parked now: the error is a consumer.Permanent
	}
	if len(n.Unread) > 0 { // Apple has changed a field, which is zero here: a person looks before it is booked
		return consumer.Permanent(fmt.Errorf("the field %s cannot be read", n.Unread[0].Path))
	}
	if n.Transaction == nil {
		return consumer.Permanent(errors.New("the notification has no transaction"))
	}
	_, err = tx.ExecContext(ctx, `UPDATE subscriptions SET paid_until = $1 WHERE id = $2`, n.Transaction.ExpiresDate.Time().Unix(), n.Transaction.OriginalTransactionID)
	return err
}

// release is what the handler needs of GitHub's event release. consumer.JSON decodes the payload of any sender that sends JSON, and
// parks what it cannot decode.
type release struct {
	Action  string `json:"action"`
	Release struct {
		Tag string `json:"tag_name"`
	} `json:"release"`
}

var publish = consumer.JSON(func(ctx context.Context, tx *sql.Tx, r release) error {
	if r.Action != "published" {
		return nil // claimed, so that a repeat of the event is a duplicate
	}
	_, err := tx.ExecContext(ctx, `INSERT INTO releases (tag) VALUES ($1)`, r.Release.Tag)
	return err
})

// counting returns a handler that counts its calls, and refuses events that are not for it.
func counting(t *testing.T, calls *int, topic string) consumer.Handler[*sql.Tx] {
	return func(_ context.Context, tx *sql.Tx, msg *consumer.Message) error {
		if *calls++; msg.Topic != topic || tx == nil {
			t.Errorf("message %+v", msg)
		}
		return nil
	}
}

// The handlers that the page shows read what the verifiers deliver.
func TestHandlersOfThePage(t *testing.T) {
	db, store, err := open(t.Context(), testOptions(t))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	for _, q := range []string{
		`CREATE TABLE subscriptions (id TEXT, active BOOLEAN, changed BIGINT, paid_until BIGINT)`, `CREATE TABLE releases (tag TEXT)`,
		`INSERT INTO subscriptions VALUES ('sub_1', true, 1, 0), ('70001', true, 1, 0)`,
	} {
		if _, err := db.Exec(q); err != nil {
			t.Fatal(err)
		}
	}
	for name, c := range map[string]struct {
		handle  consumer.Handler[*sql.Tx]
		payload []byte
		want    string
	}{
		"stripe": {
			subscriptionEnded, stripehook.Event{ID: "evt_1", Type: "customer.subscription.deleted", Created: time.Unix(1_800_000_000, 0)}.Body(map[string]any{"id": "sub_1"}),
			`SELECT count(*) FROM subscriptions WHERE id = 'sub_1' AND NOT active AND changed = 1800000000`,
		},
		"apple": {
			renewed, []byte(`{"applehook":1,"notification":{"notificationType":"DID_RENEW"},"transaction":{"originalTransactionId":"70001","expiresDate":1800000000000}}`),
			`SELECT count(*) FROM subscriptions WHERE id = '70001' AND paid_until = 1800000000`,
		},
		"github": {publish, []byte(`{"action":"published","release":{"tag_name":"v1"}}`), `SELECT count(*) FROM releases WHERE tag = 'v1'`},
	} {
		err := store.InTx(t.Context(), nil, func(tx *sql.Tx, _ []dedup.Claim) error {
			return c.handle(t.Context(), tx, &consumer.Message{ID: "1", Payload: c.payload})
		})
		var n int
		if scan := db.QueryRow(c.want).Scan(&n); err != nil || scan != nil || n != 1 {
			t.Errorf("%s: %v, %v, %d rows", name, err, scan, n)
		}
	}
	for name, handle := range map[string]consumer.Handler[*sql.Tx]{"stripe": subscriptionEnded, "apple": renewed} {
		if err := handle(t.Context(), nil, &consumer.Message{Payload: []byte(`{}`)}); !consumer.IsPermanent(err) {
			t.Errorf("%s: an event that cannot be read: %v", name, err)
		}
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
