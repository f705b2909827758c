package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"

	"github.com/txonce/txonce/adapters/webhook/applehook"
	"github.com/txonce/txonce/adapters/webhook/applehook/appletest"
	"github.com/txonce/txonce/examples/internal/webhookdemo"
)

const (
	demoBundle = "com.example.app"
	demoApp    = 1234567890
)

// demo plays Apple, and a forger, against a server of its own. Its error says what went wrong.
func demo(ctx context.Context, o options) error {
	dir, err := os.MkdirTemp("", "apple-webhook")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	s, err := newSender(o.out)
	if err != nil {
		return err
	}
	o.listen, o.sqlite, o.key, o.app = "127.0.0.1:0", filepath.Join(dir, "demo.db"), apiKey{}, s.config()
	o.logger = slog.New(slog.DiscardHandler) // a real server logs why it refused a notification

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
		use(ctx, "http://"+address+"/webhooks/apple")
	})
}

// sender plays Apple, and a forger.
type sender struct {
	*webhookdemo.Sender
	apple  *appletest.Authority
	forger *appletest.Authority // has certificates that look like Apple's, but lead to another root
}

func newSender(out io.Writer) (*sender, error) {
	apple, err := appletest.NewAuthority()
	if err != nil {
		return nil, err
	}
	forger, err := appletest.NewAuthority()
	return &sender{Sender: webhookdemo.New(out), apple: apple, forger: forger}, err
}

// config trusts the sender instead of Apple. A real server leaves Roots out.
func (s *sender) config() applehook.Config {
	return applehook.Config{
		BundleID: demoBundle, AppAppleID: demoApp, Environment: applehook.Production,
		Roots: s.apple.Roots(),
	}
}

// renewal is the notification that subscription n was renewed.
func (s *sender) renewal(n int) appletest.Notification {
	return appletest.Notification{
		Type: "DID_RENEW", UUID: fmt.Sprintf("%s-%d", s.Run, n), BundleID: demoBundle, AppAppleID: demoApp,
		Transaction: map[string]any{
			"originalTransactionId": fmt.Sprintf("%s-subscription-%d", s.Run, n),
			"expiresDate":           1900000000000,
		},
	}
}

// month is the notification of that type about the month of a subscription of its own.
func (s *sender) month(kind, name string, month int) appletest.Notification {
	const length = 30 * 24 * 3600 * 1000
	return appletest.Notification{
		Type: kind, UUID: fmt.Sprintf("%s-%s-%s-%d", s.Run, name, kind, month), BundleID: demoBundle, AppAppleID: demoApp,
		Transaction: map[string]any{
			"originalTransactionId": fmt.Sprintf("%s-%s", s.Run, name),
			"purchaseDate":          1_900_000_000_000 + length*int64(month),
			"expiresDate":           1_900_000_000_000 + length*int64(month+1),
		},
	}
}

func (s *sender) deliver(ctx context.Context, url string) {
	fmt.Fprintln(s.Out, "Apple sends notifications:")
	first := s.sign(s.apple, s.renewal(1))
	s.Send(ctx, url, "subscription 1 is renewed", first, nil, 200)
	s.Send(ctx, url, "the same again: the answer was lost", first, nil, 200)
	s.Send(ctx, url, "and again, signed anew", s.sign(s.apple, s.renewal(1)), nil, 200)
	s.Storm(ctx, url, "subscription 2 is renewed, sent", s.sign(s.apple, s.renewal(2)),
		func() http.Header { return nil })
	s.Send(ctx, url, "a type without a handler", s.sign(s.apple,
		appletest.Notification{Type: "PRICE_INCREASE", BundleID: demoBundle, AppAppleID: demoApp}), nil, 200)
	s.Send(ctx, url, "a test notification: it does not reach the handler",
		s.sign(s.apple, appletest.Notification{Type: "TEST", BundleID: demoBundle, AppAppleID: demoApp}), nil, 200)
	poison := s.renewal(3)
	poison.Transaction = nil
	s.Send(ctx, url, "a notification that cannot be handled: parked", s.sign(s.apple, poison), nil, 200)

	s.Send(ctx, url, "subscription 4 expires after its second month", s.sign(s.apple, s.month("EXPIRED", "late", 2)), nil, 200)
	s.Send(ctx, url, "late: it was renewed for that month", s.sign(s.apple, s.month("DID_RENEW", "late", 2)), nil, 200)
	s.Send(ctx, url, "late: it was subscribed", s.sign(s.apple, s.month("SUBSCRIBED", "late", 1)), nil, 200)

	fmt.Fprintln(s.Out, "\nSomebody else sends:")
	s.Send(ctx, url, "a notification signed with certificates of another root", s.sign(s.forger, s.renewal(4)),
		nil, 400)
	changed := bytes.Clone(first)
	changed[len(changed)/2] ^= 1
	s.Send(ctx, url, "a captured notification with a changed byte", changed, nil, 400)
	s.Send(ctx, url, "a notification without a signature", []byte(`{"signedPayload": "e30.e30."}`), nil, 400)
	other := s.renewal(4)
	other.BundleID = "com.example.other"
	s.Send(ctx, url, "a notification of another app", s.sign(s.apple, other), nil, 400)
	sandbox := s.renewal(4)
	sandbox.Environment = applehook.Sandbox
	s.Send(ctx, url, "a notification of the sandbox", s.sign(s.apple, sandbox), nil, 400)
}

// deliverAgain is after a restart.
func (s *sender) deliverAgain(ctx context.Context, url string) {
	for n := 1; n <= 2; n++ {
		s.Send(ctx, url, fmt.Sprintf("subscription %d once more", n), s.sign(s.apple, s.renewal(n)), nil, 200)
	}
}

func (s *sender) sign(by *appletest.Authority, n appletest.Notification) (body []byte) {
	body, err := by.Body(n)
	if err != nil {
		s.Fail(err)
	}
	return body
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
		s.Count(ctx, db, fmt.Sprintf("renewal of subscription %d", n), 1,
			`SELECT count(*) FROM renewals WHERE subscription = $1`, fmt.Sprintf("%s-subscription-%d", s.Run, n))
	}
	s.Count(ctx, db, "renewals that Apple did not announce", 0,
		`SELECT count(*) FROM renewals WHERE notification LIKE $1 AND subscription NOT LIKE $2 AND notification NOT IN ($3, $4)`, s.Run+"%", s.Run+"-late",
		s.Run+"-1", s.Run+"-2")
	s.Count(ctx, db, "expired subscription", 1,
		`SELECT count(*) FROM subscription_states WHERE id = $1 AND state = 'expired'`, s.Run+"-late")
	s.CountParked(ctx, store, "parked notification", "subscriptions", s.Run+"-3")
}
