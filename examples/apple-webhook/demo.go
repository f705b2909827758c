package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/txonce/txonce/adapters/webhook/applehook"
	"github.com/txonce/txonce/adapters/webhook/applehook/appletest"
	"github.com/txonce/txonce/consumer"
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
	fmt.Fprintln(s.out, "\nThe server is stopped and started again.")
	if err := serve(ctx, o, s.deliverAgain); err != nil {
		return err
	}
	s.audit(ctx, o)
	if len(s.wrong) > 0 {
		return fmt.Errorf("%d results are wrong: %w", len(s.wrong), errors.Join(s.wrong...))
	}
	fmt.Fprintln(s.out, "All is as it must be.")
	return nil
}

// serve runs the server while use sends to it.
func serve(ctx context.Context, o options, use func(ctx context.Context, url string)) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	address, ended := make(chan string, 1), make(chan error, 1)
	o.ready = func(a string) { address <- a }
	go func() { ended <- run(ctx, o) }()
	select {
	case a := <-address:
		use(ctx, "http://"+a+"/webhooks/apple")
	case err := <-ended:
		return err
	}
	stop() // as SIGTERM does
	return <-ended
}

// sender plays Apple, and a forger.
type sender struct {
	out    io.Writer
	run    string // part of the IDs: PostgreSQL has those of earlier runs
	apple  *appletest.Authority
	forger *appletest.Authority // has certificates that look like Apple's, but lead to another root
	wrong  []error
}

func newSender(out io.Writer) (*sender, error) {
	apple, err := appletest.NewAuthority()
	if err != nil {
		return nil, err
	}
	forger, err := appletest.NewAuthority()
	return &sender{out: out, run: rand.Text()[:8], apple: apple, forger: forger}, err
}

// config trusts the sender instead of Apple. A real server leaves Roots out.
func (s *sender) config() applehook.Config {
	return applehook.Config{BundleID: demoBundle, AppAppleID: demoApp, Environment: applehook.Production, Roots: s.apple.Roots()}
}

// renewal is the notification that subscription n was renewed.
func (s *sender) renewal(n int) appletest.Notification {
	return appletest.Notification{
		Type: "DID_RENEW", UUID: fmt.Sprintf("%s-%d", s.run, n), BundleID: demoBundle, AppAppleID: demoApp,
		Transaction: map[string]any{"originalTransactionId": fmt.Sprintf("%s-subscription-%d", s.run, n), "expiresDate": 1900000000000},
	}
}

func (s *sender) deliver(ctx context.Context, url string) {
	fmt.Fprintln(s.out, "Apple sends notifications:")
	first := s.sign(s.apple, s.renewal(1))
	s.send(ctx, url, "subscription 1 is renewed", first, 200)
	s.send(ctx, url, "the same again: the answer was lost", first, 200)
	s.send(ctx, url, "and again, signed anew", s.sign(s.apple, s.renewal(1)), 200)
	s.storm(ctx, url, s.sign(s.apple, s.renewal(2)))
	s.send(ctx, url, "a type without a handler", s.sign(s.apple, appletest.Notification{Type: "PRICE_INCREASE", BundleID: demoBundle, AppAppleID: demoApp}), 200)
	s.send(ctx, url, "a test notification: it does not reach the handler", s.sign(s.apple, appletest.Notification{Type: "TEST", BundleID: demoBundle, AppAppleID: demoApp}), 200)
	poison := s.renewal(3)
	poison.Transaction = nil
	s.send(ctx, url, "a notification that cannot be handled: parked", s.sign(s.apple, poison), 200)

	fmt.Fprintln(s.out, "\nSomebody else sends:")
	s.send(ctx, url, "a notification signed with certificates of another root", s.sign(s.forger, s.renewal(4)), 400)
	changed := bytes.Clone(first)
	changed[len(changed)/2] ^= 1
	s.send(ctx, url, "a captured notification with a changed byte", changed, 400)
	s.send(ctx, url, "a notification without a signature", []byte(`{"signedPayload": "e30.e30."}`), 400)
	other := s.renewal(4)
	other.BundleID = "com.example.other"
	s.send(ctx, url, "a notification of another app", s.sign(s.apple, other), 400)
	sandbox := s.renewal(4)
	sandbox.Environment = applehook.Sandbox
	s.send(ctx, url, "a notification of the sandbox", s.sign(s.apple, sandbox), 400)
}

// deliverAgain is after a restart.
func (s *sender) deliverAgain(ctx context.Context, url string) {
	for n := 1; n <= 2; n++ {
		s.send(ctx, url, fmt.Sprintf("subscription %d once more", n), s.sign(s.apple, s.renewal(n)), 200)
	}
}

func (s *sender) sign(by *appletest.Authority, n appletest.Notification) (body []byte) {
	body, err := by.Body(n)
	if err != nil {
		s.wrong = append(s.wrong, err)
	}
	return body
}

// send delivers once, prints the answer, and remembers it if it is not want.
func (s *sender) send(ctx context.Context, url, what string, body []byte, want int) {
	status, err := post(ctx, url, body)
	fmt.Fprintf(s.out, "  %d  %s\n", status, what)
	if status != want {
		s.wrong = append(s.wrong, fmt.Errorf("%s: status %d, want %d; error %s", what, status, want, fmt.Sprint(err)))
	}
}

// storm sends a notification 20 times at once, and again where the answer is 503, as Apple does.
func (s *sender) storm(ctx context.Context, url string, body []byte) {
	var all sync.WaitGroup
	var mu sync.Mutex
	accepted := 0
	for range 20 {
		all.Go(func() {
			for range 20 {
				status, _ := post(ctx, url, body)
				if status == http.StatusServiceUnavailable {
					<-time.After(50 * time.Millisecond) // it is being handled; Apple waits for an hour
					continue
				}
				mu.Lock()
				defer mu.Unlock()
				if status == http.StatusOK {
					accepted++
				}
				return
			}
		})
	}
	all.Wait()
	fmt.Fprintf(s.out, "  200  subscription 2 is renewed, sent %d times at once\n", accepted)
	if accepted != 20 {
		s.wrong = append(s.wrong, fmt.Errorf("subscription 2: %d of 20 notifications were accepted", accepted))
	}
}

func post(ctx context.Context, url string, body []byte) (status int, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return 0, err
	}
	req.Header.Set("Content-Type", "application/json")
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, err
	}
	return res.StatusCode, res.Body.Close()
}

// audit compares what is in the database with what was sent.
func (s *sender) audit(ctx context.Context, o options) {
	fmt.Fprintln(s.out, "\nIn the database:")
	check := func(what string, got int, err error, want int) {
		fmt.Fprintf(s.out, "  %d  %s\n", got, what)
		if got != want || err != nil {
			s.wrong = append(s.wrong, fmt.Errorf("%d %s, want %d; error %s", got, what, want, fmt.Sprint(err)))
		}
	}
	db, store, err := open(ctx, o)
	if err != nil {
		s.wrong = append(s.wrong, err)
		return
	}
	defer db.Close()
	count := func(query string, args ...any) (n int, err error) {
		err = db.QueryRowContext(ctx, query, args...).Scan(&n)
		return n, err
	}
	for n := 1; n <= 2; n++ {
		got, err := count(`SELECT count(*) FROM renewals WHERE subscription = $1`, fmt.Sprintf("%s-subscription-%d", s.run, n))
		check(fmt.Sprintf("renewal of subscription %d", n), got, err, 1)
	}
	got, err := count(`SELECT count(*) FROM renewals WHERE notification LIKE $1 AND notification NOT IN ($2, $3)`, s.run+"%", s.run+"-1", s.run+"-2")
	check("renewals that Apple did not announce", got, err, 0)
	letters, err := store.DeadLetters(ctx, consumer.DeadLetterFilter{Consumer: "subscriptions"})
	parked := 0
	for _, l := range letters {
		if l.Message.ID == s.run+"-3" {
			parked++
		}
	}
	check("parked notification", parked, err, 1)
}
