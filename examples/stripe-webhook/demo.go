package main

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/txonce/txonce/adapters/webhook/stripehook"
	"github.com/txonce/txonce/examples/internal/webhookdemo"
)

const (
	demoSecret   = "whsec_demo_secret_of_the_endpoint"
	forgedSecret = "whsec_demo_secret_of_somebody_else"
)

// demo plays Stripe, and a forger, against a server of its own. Its error says what went wrong.
func demo(ctx context.Context, o options) error {
	dir, err := os.MkdirTemp("", "stripe-webhook")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	o.listen, o.sqlite, o.secret, o.mode, o.apiKey = "127.0.0.1:0", filepath.Join(dir, "demo.db"), demoSecret,
		stripehook.Test, ""
	o.logger = slog.New(slog.DiscardHandler) // a real server logs why it refused a delivery
	s := &sender{webhookdemo.New(o.out)}

	if err := serve(ctx, o, s.deliver); err != nil {
		return err
	}
	fmt.Fprintln(s.Out, "\nThe server is stopped and started again.")
	if err := serve(ctx, o, s.deliverAgain); err != nil {
		return err
	}
	s.audit(ctx, o)
	return s.Err()
}

// serve runs the server while use sends to it.
func serve(ctx context.Context, o options, use func(ctx context.Context, url string)) error {
	server := func(ctx context.Context, ready func(address string)) error {
		o.ready = ready
		return run(ctx, o)
	}
	return webhookdemo.Serve(ctx, server, func(ctx context.Context,
		address string,
	) {
		use(ctx, "http://"+address+"/webhooks/stripe")
	})
}

// sender plays Stripe, and a forger.
type sender struct{ *webhookdemo.Sender }

// signature is what the server sees of a signature, as stripehook.Sign makes it.
func signature(body []byte, at time.Time, secrets ...string) http.Header {
	return http.Header{"Stripe-Signature": {stripehook.Sign(body, at, secrets...)}}
}

// invoice is the event that invoice number n is paid.
func (s *sender) invoice(n int, object any) (body []byte) {
	e := stripehook.Event{ID: fmt.Sprintf("evt_%s_%d", s.Run, n), Type: "invoice.paid"}
	if object == nil {
		object = map[string]any{"id": fmt.Sprintf("in_%d", n), "amount_paid": 100 * n}
	}
	return e.Body(object)
}

// subscription is an event of the subscription of this run, which Stripe created that many seconds after midnight.
func (s *sender) subscription(kind, status string, seconds int) (body []byte) {
	e := stripehook.Event{
		ID: fmt.Sprintf("evt_%s_%s_%d", s.Run, kind, seconds), Type: "customer.subscription." + kind,
		Created: time.Now().Truncate(24 * time.Hour).Add(time.Duration(seconds) * time.Second),
	}
	return e.Body(map[string]any{"id": "sub_" + s.Run, "status": status})
}

func (s *sender) deliver(ctx context.Context, url string) {
	now, first := time.Now(), s.invoice(1, nil)
	signed := func(body []byte) http.Header { return signature(body, now, demoSecret) }

	fmt.Fprintln(s.Out, "Stripe delivers events:")
	s.Send(ctx, url, "invoice 1 is paid", first, signed(first), 200)
	s.Send(ctx, url, "the same again: the answer was lost", first, signed(first), 200)
	s.Send(ctx, url, "and again, with signatures of an old and a new secret", first,
		signature(first, now, "whsec_demo_secret_that_was_rolled", demoSecret), 200)
	second := s.invoice(2, nil)
	s.Storm(ctx, url, "invoice 2 is paid, delivered", second, func() http.Header { return signed(second) })
	other := stripehook.Event{ID: "evt_" + s.Run + "_other", Type: "customer.created"}.Body(nil)
	s.Send(ctx, url, "a type without a handler", other, signed(other), 200)
	poison := s.invoice(3, map[string]any{})
	s.Send(ctx, url, "an event that cannot be handled: parked", poison, signed(poison), 200)

	for _, e := range []struct{ what, kind, status string }{
		{"a subscription is updated: active", "updated", "active"},
		{"late: it was created, in the same second", "created", "incomplete"},
	} {
		body := s.subscription(e.kind, e.status, 1)
		s.Send(ctx, url, e.what, body, signed(body), 200)
	}
	deleted, late := s.subscription("deleted", "canceled", 9), s.subscription("updated", "past_due", 5)
	s.Send(ctx, url, "it is deleted: canceled", deleted, signed(deleted), 200)
	s.Send(ctx, url, "late: it was updated before: past_due", late, signed(late), 200)

	fmt.Fprintln(s.Out, "\nSomebody else sends:")
	forged := s.invoice(4, nil)
	s.Send(ctx, url, "an event signed with a guessed secret", forged, signature(forged, now, forgedSecret), 400)
	s.Send(ctx, url, "an event without a signature", forged, nil, 400)
	s.Send(ctx, url, "a captured event with another amount", bytes.Replace(first, []byte(`"amount_paid":100`),
		[]byte(`"amount_paid":999`), 1), signed(first), 400)
	s.Send(ctx, url, "a captured event, an hour later", forged, signature(forged, now.Add(-time.Hour), demoSecret), 400)
	live := stripehook.Event{
		ID: "evt_" + s.Run + "_live", Type: "invoice.paid",
		Livemode: true,
	}.Body(map[string]any{"id": "in_5"})
	s.Send(ctx, url, "an event of the other mode", live, signed(live), 400)
}

// deliverAgain is after a restart.
func (s *sender) deliverAgain(ctx context.Context, url string) {
	for n := 1; n <= 2; n++ {
		body := s.invoice(n, nil)
		s.Send(ctx, url, fmt.Sprintf("invoice %d once more", n), body, signature(body, time.Now(), demoSecret), 200)
	}
}

// audit compares the database with the events that were sent.
func (s *sender) audit(ctx context.Context, o options) {
	fmt.Fprintln(s.Out, "\nIn the database:")
	db, store, err := open(ctx, o)
	if err != nil {
		s.Fail(err)
		return
	}
	defer db.Close()
	for n := 1; n <= 2; n++ {
		s.Count(ctx, db, fmt.Sprintf("payment of invoice %d", n), 1,
			`SELECT count(*) FROM payments WHERE event_id = $1`, fmt.Sprintf("evt_%s_%d", s.Run, n))
	}
	s.Count(ctx, db, "payments that Stripe did not announce", 0,
		`SELECT count(*) FROM payments WHERE event_id LIKE $1 AND invoice_id NOT IN ('in_1', 'in_2')`, "evt_"+s.Run+"%")
	s.Count(ctx, db, "canceled subscription", 1,
		`SELECT count(*) FROM subscription_states WHERE id = $1 AND status = 'canceled'`, "sub_"+s.Run)
	s.CountParked(ctx, store, "parked event", "billing", fmt.Sprintf("evt_%s_3", s.Run))
}
