package webhook_test

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"log"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"time"

	"github.com/txonce/txonce/adapters/webhook"
	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/consumer/consumertest"
	"github.com/txonce/txonce/dedup/deduptest"
	"github.com/txonce/txonce/outbox"
	"github.com/txonce/txonce/outbox/relay"
)

// bakery verifies the deliveries of a sender that signs "id.time.body".
type bakery struct{ secret []byte }

func (b bakery) sign(id, at, body string) string {
	mac := hmac.New(sha256.New, b.secret)
	fmt.Fprintf(mac, "%s.%s.%s", id, at, body)
	return hex.EncodeToString(mac.Sum(nil))
}

func (b bakery) Source() webhook.Source {
	return webhook.Source{
		Name: "bakery", Horizon: 3 * 24 * time.Hour, Deadline: 10 * time.Second,
		GiveUpAfter: 24 * time.Hour,
	}
}

func (b bakery) Verify(_ context.Context, d *webhook.Delivery) ([]webhook.Event, error) {
	id, at := d.Header.Get("Bakery-Id"), d.Header.Get("Bakery-Time")
	if strings.Contains(id, ".") {
		return nil, webhook.Refuse(webhook.Malformed, "the id contains the separator")
	}
	if !hmac.Equal([]byte(d.Header.Get("Bakery-Signature")), []byte(b.sign(id, at, string(d.Body)))) {
		return nil, webhook.Refuse(webhook.BadSignature, "no secret made the signature")
	}
	created, err := time.Parse(time.RFC3339, at)
	if err != nil {
		return nil, webhook.Refuse(webhook.BadTime, "%v", err)
	}
	return []webhook.Event{{Message: consumer.Message{
		ID: id, Tenant: "bakery/shop-7", Topic: d.Header.Get("Bakery-Topic"), Time: created, Payload: d.Body,
	}}}, nil
}

// deliver sends one event as the bakery does, and returns the status of the response.
func (b bakery) deliver(h http.Handler, id, topic string) int {
	at := time.Now().UTC().Format(time.RFC3339)
	req := httptest.NewRequest(http.MethodPost, "/hooks/bakery", strings.NewReader(`{"bread":1}`))
	req.Header = http.Header{
		"Bakery-Id": {id}, "Bakery-Time": {at}, "Bakery-Topic": {topic},
		"Bakery-Signature": {b.sign(id, at, `{"bread":1}`)},
	}
	rec := httptest.NewRecorder()
	h.ServeHTTP(rec, req)
	return rec.Code
}

// A Receiver handles each event once, although it is delivered twice. In a program the store is a pgxstore.Store or a
// sqlstore.Store.
func ExampleReceiver() {
	store := consumertest.NewStore()
	orders, err := consumer.New(consumer.Config[*deduptest.Tx]{
		Name: "orders", Store: store, Key: consumer.MessageID, Logger: slog.New(slog.DiscardHandler),
		Handle: func(_ context.Context, tx *deduptest.Tx, msg *consumer.Message) error {
			return tx.Add("loaves of " + msg.Tenant)
		},
	})
	if err != nil {
		log.Fatal(err)
	}
	sender := bakery{[]byte("a secret with at least 24 bytes")}
	receiver, err := webhook.New(webhook.Config{Verifier: sender, Processor: orders})
	if err != nil {
		log.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.Handle("/hooks/bakery", receiver)

	fmt.Println(sender.deliver(mux, "evt-1", "baked"))
	fmt.Println(sender.deliver(mux, "evt-1", "baked")) // the response was lost
	fmt.Println("effects:", store.Database().Count("loaves of bakery/shop-7"))

	// At the end of the program, after http.Server.Shutdown:
	fmt.Println(receiver.Shutdown(context.Background()))
	// Output:
	// 200
	// 200
	// effects: 1
	// <nil>
}

// A Verifier refuses what its sender has not signed. The sender gets no reason, but the log does.
func ExampleVerifier() {
	receiver, err := webhook.New(webhook.Config{
		Verifier:  bakery{[]byte("a secret with at least 24 bytes")},
		Processor: always(nil),
		Logger:    slog.New(slog.DiscardHandler),
		Trace: &webhook.Trace{
			Refused: func(_ context.Context, e webhook.TraceEvent) { fmt.Println("refused:", e.Err) },
		},
	})
	if err != nil {
		log.Fatal(err)
	}
	forger := bakery{[]byte("another secret of 24 bytes")}
	fmt.Println(forger.deliver(receiver, "evt-1", "baked"))
	// Output:
	// refused: bad-signature: no secret made the signature
	// 400
}

// An Inbox stores events before the sender gets its answer, and a Worker hands them to the consumer later. Both use the
// database of the consumer. In a program the Store is also the Outbox and the relay's Queue.
func ExampleInbox() {
	store := consumertest.NewStore()
	out := newPending(store) // with a pgxstore.Store or sqlstore.Store: leave Outbox out
	inbox, err := webhook.NewInbox(webhook.InboxConfig[*deduptest.Tx]{
		Name: "orders", Store: store, Outbox: out,
		Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		log.Fatal(err)
	}
	sender := bakery{[]byte("a secret with at least 24 bytes")}
	receiver, err := webhook.New(webhook.Config{Verifier: sender, Processor: inbox})
	if err != nil {
		log.Fatal(err)
	}
	orders, err := consumer.New(consumer.Config[*deduptest.Tx]{
		Name: "orders", Store: store, Key: consumer.MessageID, Logger: slog.New(slog.DiscardHandler),
		Handle: func(_ context.Context, tx *deduptest.Tx, msg *consumer.Message) error {
			fmt.Println("handled:", msg.ID, msg.Topic)
			return nil
		},
	})
	if err != nil {
		log.Fatal(err)
	}
	worker, err := webhook.NewWorker(webhook.WorkerConfig{Processor: orders})
	if err != nil {
		log.Fatal(err)
	}
	r, err := relay.New(relay.Config{Queue: out.queue, Publishers: map[string]outbox.Publisher{inbox.Topic(): worker}})
	if err != nil {
		log.Fatal(err)
	}

	fmt.Println(sender.deliver(receiver, "evt-1", "baked"))
	fmt.Println(sender.deliver(receiver, "evt-1", "baked"))
	out.mustMove()
	published, err := r.RunOnce(context.Background()) // a program calls Run
	fmt.Println(published, err)
	// Output:
	// 200
	// 200
	// handled: evt-1 baked
	// 1 <nil>
}

// A type without a handler is acknowledged, so that the sender does not deliver it again.
func ExampleByTopic() {
	handle := webhook.ByTopic(map[string]consumer.Handler[*deduptest.Tx]{
		"baked": func(context.Context, *deduptest.Tx, *consumer.Message) error {
			fmt.Println("a loaf")
			return nil
		},
	})
	for _, topic := range []string{"baked", "oven.cleaned"} {
		fmt.Println(topic, handle(context.Background(), nil, &consumer.Message{Topic: topic}))
	}
	// Output:
	// a loaf
	// baked <nil>
	// oven.cleaned <nil>
}

// Hooks count what happens to deliveries.
func ExampleTrace() {
	count := map[string]int{}
	hook := func(name string) func(context.Context, webhook.TraceEvent) {
		return func(context.Context, webhook.TraceEvent) { count[name]++ }
	}
	orders, err := consumer.New(consumer.Config[*deduptest.Tx]{
		Name: "orders", Store: consumertest.NewStore(), Key: consumer.MessageID, Logger: slog.New(slog.DiscardHandler),
		Handle: func(context.Context, *deduptest.Tx, *consumer.Message) error { return nil },
	})
	if err != nil {
		log.Fatal(err)
	}
	sender := bakery{[]byte("a secret with at least 24 bytes")}
	receiver, err := webhook.New(webhook.Config{Verifier: sender, Processor: orders, Trace: &webhook.Trace{
		Accepted: hook("accepted"), Duplicate: hook("duplicate"), Refused: hook("refused"), Parked: hook("parked"),
		Deferred: hook("deferred"),
	}})
	if err != nil {
		log.Fatal(err)
	}
	for range 3 {
		sender.deliver(receiver, "evt-1", "baked")
	}
	fmt.Println(count)
	// Output: map[accepted:1 duplicate:2]
}

// A backfill keeps in the database how far it has come.
func ExampleCheckpoint() {
	ctx := context.Background()
	checkpoint, err := webhook.NewCheckpoint(consumertest.NewStore(), "bakery", 90*24*time.Hour)
	if err != nil {
		log.Fatal(err)
	}
	state, err := checkpoint.Load(ctx)
	fmt.Printf("%q %v\n", state, err)
	fmt.Println(checkpoint.Save(ctx, []byte("evt-7")))
	state, err = checkpoint.Load(ctx)
	fmt.Printf("%q %v\n", state, err)
	// Output:
	// "" <nil>
	// <nil>
	// "evt-7" <nil>
}
