package stripehook_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/txonce/txonce/adapters/webhook"
	"github.com/txonce/txonce/adapters/webhook/stripehook"
	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/consumer/consumertest"
	"github.com/txonce/txonce/dedup/deduptest"
)

// A receiver of package webhook calls the Verifier. Here the signer for tests takes the part of Stripe, and of a
// forger.
func ExampleVerifier() {
	const secret = "whsec_copied0from1the2dashboard"
	verifier, err := stripehook.New(stripehook.Config{Secrets: []stripehook.Secret{{Value: secret, Mode: stripehook.Live}}})
	if err != nil {
		panic(err)
	}
	body := stripehook.Event{ID: "evt_1", Type: "invoice.paid", Livemode: true, Object: "in_1"}.Body(nil)
	for _, signedWith := range []string{secret, "whsec_guessed0by1somebody"} {
		header := http.Header{"Stripe-Signature": {stripehook.Sign(body, time.Now(), signedWith)}}
		events, err := verifier.Verify(context.Background(),
			&webhook.Delivery{Header: header, Body: body, Time: time.Now()})
		if err != nil {
			fmt.Println("refused:", webhook.RefusalOf(err))
			continue
		}
		fmt.Println(events[0].Message.ID, events[0].Message.Topic, "of", events[0].Message.Tenant)
	}

	// Output:
	// evt_1 invoice.paid of stripe/live
	// refused: bad-signature
}

// An event whose webhook was missed is fetched, and its webhook is a duplicate when it comes after all.
func ExampleBackfill() {
	store := consumertest.NewStore() // pgxstore.New, sqlstore.New
	billing, err := consumer.New(consumer.Config[*deduptest.Tx]{
		Name: "billing", Store: store, Key: consumer.MessageID, Window: 40 * 24 * time.Hour,
		Logger: slog.New(slog.DiscardHandler),
		Handle: func(_ context.Context, tx *deduptest.Tx, msg *consumer.Message) error { return tx.Add(msg.Topic) },
	})
	if err != nil {
		panic(err)
	}
	missed := stripehook.Event{
		ID: "evt_1", Type: "invoice.paid", Livemode: true, Created: time.Now().Add(-time.Hour),
		Object: "in_1",
	}
	stripe := &fakeStripe{} // https://api.stripe.com
	stripe.add(missed)
	api := httptest.NewServer(stripe)
	defer api.Close()

	client, err := stripehook.NewClient(stripehook.ClientConfig{
		APIKey: "rk_live_made0up1for2these3tests",
		Mode:   stripehook.Live, BaseURL: api.URL,
	})
	if err != nil {
		panic(err)
	}
	checkpoint, err := webhook.NewCheckpoint(store, "billing stripe", 40*24*time.Hour)
	if err != nil {
		panic(err)
	}
	const secret = "whsec_made0up1for2these3tests"
	// the receiver's
	verifier, err := stripehook.New(stripehook.Config{Secrets: []stripehook.Secret{{Value: secret, Mode: stripehook.Live}}})
	if err != nil {
		panic(err)
	}
	backfill, err := stripehook.NewBackfill(stripehook.BackfillConfig[*deduptest.Tx]{
		Client: client, Verifier: verifier, Processor: billing, Checkpoint: checkpoint,
		Since: time.Now().Add(-24 * time.Hour), // a constant: when billing went live
	})
	if err != nil {
		panic(err)
	}
	for range 2 { // or backfill.Run(ctx), next to the HTTP server
		if err := backfill.Once(context.Background()); err != nil {
			panic(err)
		}
	}
	fmt.Println(store.Database().Count("invoice.paid"), "effect")

	// Output:
	// 1 effect
}

// A handler reads the event, and fetches its object as it is now.
func ExampleClient_Get() {
	var client *stripehook.Client // of NewClient
	_ = func(ctx context.Context, tx *deduptest.Tx, msg *consumer.Message) error {
		event, err := stripehook.Parse(msg.Payload)
		if err != nil {
			return consumer.Permanent(err)
		}
		if event.Type != "v1.invoice.paid" {
			return nil // types without a handler are acknowledged
		}
		ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
		defer cancel()
		invoice, err := client.Get(ctx, event.ObjectURL, msg.Headers[stripehook.ContextHeader])
		if err != nil {
			return err
		}
		return tx.Add(string(invoice))
	}
}

// The signer makes the events of a test, snapshot and thin.
func ExampleEvent_Body() {
	created := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	snapshot := stripehook.Event{
		ID: "evt_1", Type: "invoice.paid", Livemode: true, Created: created,
		APIVersion: "2026-10-01",
	}
	fmt.Println(string(snapshot.Body(map[string]any{"id": "in_1", "total": 500})))
	thin := stripehook.Event{
		ID: "evt_2", Thin: true, Type: "v1.invoice.paid", Livemode: true, Created: created,
		Object: "in_1", ObjectURL: "/v1/invoices/in_1", Snapshot: "evt_1",
	}
	fmt.Println(string(thin.Body(nil)))
	fmt.Println(thin.LogicalID())

	// Output:
	// {"api_version":"2026-10-01","created":1795176000,"data":{"object":{"id":"in_1","total":500}},"id":"evt_1","livemode":true,"object":"event","pending_webhooks":1,"type":"invoice.paid"}
	// {"created":"2026-11-20T12:00:00Z","id":"evt_2","livemode":true,"object":"v2.core.event","related_object":{"id":"in_1","url":"/v1/invoices/in_1"},"snapshot_event":"evt_1","type":"v1.invoice.paid"}
	// evt_1
}
