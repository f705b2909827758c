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

	"github.com/txonce/txonce/adapters/webhook/stripehook"
	"github.com/txonce/txonce/consumer"
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
	o.listen, o.sqlite, o.secret, o.mode, o.apiKey = "127.0.0.1:0", filepath.Join(dir, "demo.db"), demoSecret, stripehook.Test, ""
	o.logger = slog.New(slog.DiscardHandler) // a real server logs why it refused a delivery
	s := &sender{out: o.out, run: rand.Text()[:8]}

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
		use(ctx, "http://"+a+"/webhooks/stripe")
	case err := <-ended:
		return err
	}
	stop() // as SIGTERM does
	return <-ended
}

// sender plays Stripe, and a forger.
type sender struct {
	out   io.Writer
	run   string // part of the events' IDs: PostgreSQL has those of earlier runs
	wrong []error
}

// invoice is the event that invoice number n is paid.
func (s *sender) invoice(n int, object any) (body []byte) {
	e := stripehook.Event{ID: fmt.Sprintf("evt_%s_%d", s.run, n), Type: "invoice.paid"}
	if object == nil {
		object = map[string]any{"id": fmt.Sprintf("in_%d", n), "amount_paid": 100 * n}
	}
	return e.Body(object)
}

func (s *sender) deliver(ctx context.Context, url string) {
	now, first := time.Now(), s.invoice(1, nil)
	signed := func(body []byte) string { return stripehook.Sign(body, time.Now(), demoSecret) }

	fmt.Fprintln(s.out, "Stripe delivers events:")
	s.send(ctx, url, "invoice 1 is paid", first, signed(first), 200)
	s.send(ctx, url, "the same again: the answer was lost", first, signed(first), 200)
	s.send(ctx, url, "and again, with signatures of an old and a new secret", first, stripehook.Sign(first, now, "whsec_demo_secret_that_was_rolled", demoSecret), 200)
	s.storm(ctx, url, s.invoice(2, nil))
	other := stripehook.Event{ID: "evt_" + s.run + "_other", Type: "customer.created"}.Body(nil)
	s.send(ctx, url, "a type without a handler", other, signed(other), 200)
	poison := s.invoice(3, map[string]any{})
	s.send(ctx, url, "an event that cannot be handled: parked", poison, signed(poison), 200)

	fmt.Fprintln(s.out, "\nSomebody else sends:")
	forged := s.invoice(4, nil)
	s.send(ctx, url, "an event signed with a guessed secret", forged, stripehook.Sign(forged, now, forgedSecret), 400)
	s.send(ctx, url, "an event without a signature", forged, "", 400)
	s.send(ctx, url, "a captured event with another amount", bytes.Replace(first, []byte(`"amount_paid":100`), []byte(`"amount_paid":999`), 1), signed(first), 400)
	s.send(ctx, url, "a captured event, an hour later", forged, stripehook.Sign(forged, now.Add(-time.Hour), demoSecret), 400)
	live := stripehook.Event{ID: "evt_" + s.run + "_live", Type: "invoice.paid", Livemode: true}.Body(map[string]any{"id": "in_5"})
	s.send(ctx, url, "an event of the other mode", live, signed(live), 400)
}

// deliverAgain is after a restart.
func (s *sender) deliverAgain(ctx context.Context, url string) {
	for n := 1; n <= 2; n++ {
		body := s.invoice(n, nil)
		s.send(ctx, url, fmt.Sprintf("invoice %d once more", n), body, stripehook.Sign(body, time.Now(), demoSecret), 200)
	}
}

// send delivers once, prints the answer, and remembers it if it is not want.
func (s *sender) send(ctx context.Context, url, what string, body []byte, signature string, want int) {
	status, err := post(ctx, url, body, signature)
	fmt.Fprintf(s.out, "  %d  %s\n", status, what)
	if status != want {
		s.wrong = append(s.wrong, fmt.Errorf("%s: status %d, want %d; error %s", what, status, want, fmt.Sprint(err)))
	}
}

// storm delivers an event 20 times at once, and again where the answer is 503, as Stripe does.
func (s *sender) storm(ctx context.Context, url string, body []byte) {
	var all sync.WaitGroup
	var mu sync.Mutex
	accepted := 0
	for range 20 {
		all.Go(func() {
			for range 20 {
				status, _ := post(ctx, url, body, stripehook.Sign(body, time.Now(), demoSecret))
				if status == http.StatusServiceUnavailable {
					<-time.After(50 * time.Millisecond) // it is being handled; Stripe waits much longer
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
	fmt.Fprintf(s.out, "  200  invoice 2 is paid, delivered %d times at once\n", accepted)
	if accepted != 20 {
		s.wrong = append(s.wrong, fmt.Errorf("invoice 2: %d of 20 deliveries were accepted", accepted))
	}
}

func post(ctx context.Context, url string, body []byte, signature string) (status int, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return 0, err
	}
	req.Header.Set("Content-Type", "application/json; charset=utf-8")
	if signature != "" {
		req.Header.Set("Stripe-Signature", signature)
	}
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
		got, err := count(`SELECT count(*) FROM payments WHERE event_id = $1`, fmt.Sprintf("evt_%s_%d", s.run, n))
		check(fmt.Sprintf("payment of invoice %d", n), got, err, 1)
	}
	got, err := count(`SELECT count(*) FROM payments WHERE event_id LIKE $1 AND invoice_id NOT IN ('in_1', 'in_2')`, "evt_"+s.run+"%")
	check("payments that Stripe did not announce", got, err, 0)
	letters, err := store.DeadLetters(ctx, consumer.DeadLetterFilter{Consumer: "billing"})
	parked := 0
	for _, l := range letters {
		if l.Message.ID == fmt.Sprintf("evt_%s_3", s.run) {
			parked++
		}
	}
	check("parked event", parked, err, 1)
}
