package httpidem_test

import (
	"context"
	"crypto/aes"
	"crypto/cipher"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"time"

	"github.com/txonce/txonce/adapters/httpidem"
	"github.com/txonce/txonce/dedup/deduptest"
)

// post sends a POST /payments with this key and body.
func post(h http.Handler, key string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodPost, "/payments", nil)
	if key != "" {
		r.Header.Set("Idempotency-Key", key)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

// Settings of a payments API: two secrets while one is replaced, encrypted responses, and failures that are final, as
// Stripe's are.
func ExampleConfig() {
	block, err := aes.NewCipher(exampleSecret[:32])
	if err != nil {
		panic(err)
	}
	gcm, err := cipher.NewGCMWithRandomNonce(block)
	if err != nil {
		panic(err)
	}
	newSecret := []byte("another secret of 32 random bytes")
	_, err = httpidem.New(httpidem.Config[*deduptest.Tx]{
		Name:      "payments-api",
		Store:     deduptest.NewStore(),
		Secrets:   [][]byte{newSecret, exampleSecret},
		Principal: func(r *http.Request) (string, error) { return r.Header.Get("X-Authenticated-User"), nil },
		Window:    72 * time.Hour, ClientRetryHorizon: 48 * time.Hour,
		KeyTime: httpidem.UUIDv7Time,
		Record:  httpidem.RecordStripeV1,
		Headers: []string{"X-Payment-Id"},
		Seal:    func(plain, identity []byte) ([]byte, error) { return gcm.Seal(nil, nil, plain, identity), nil },
		Open:    func(sealed, identity []byte) ([]byte, error) { return gcm.Open(nil, nil, sealed, identity) },
	})
	fmt.Println(err)
	_, err = httpidem.New(httpidem.Config[*deduptest.Tx]{
		Name: "payments-api", Store: deduptest.NewStore(), Secrets: [][]byte{exampleSecret},
		Principal: httpidem.Anonymous, ClientRetryHorizon: 48 * time.Hour,
	})
	fmt.Println(err)
	// Output:
	// <nil>
	// httpidem: Config.Window is 24h0m0s, shorter than Config.ClientRetryHorizon, 48h0m0s: a retry after the window would run again; make Window longer
}

// A handler that declines a payment writes the reason and returns nil: its work is rolled back, and a repeat gets the
// same answer. An error is logged, and the client sees only that the request failed.
func ExampleHandler() {
	guard, err := httpidem.New(httpidem.Config[*deduptest.Tx]{
		Name: "payments-api", Store: deduptest.NewStore(), Secrets: [][]byte{exampleSecret},
		Principal: httpidem.Anonymous, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		panic(err)
	}
	var pay httpidem.Handler[*deduptest.Tx] = func(_ context.Context, tx *deduptest.Tx, w http.ResponseWriter,
		r *http.Request,
	) error {
		if err := tx.Add("charge"); err != nil {
			return err
		}
		if r.Header.Get("Idempotency-Key") == "broke" {
			w.WriteHeader(http.StatusPaymentRequired)
			return nil
		}
		return errors.New("the ledger is closed")
	}
	h := guard.Handle(pay)
	fmt.Println(post(h, "broke").Code, post(h, "broke").Header().Get("Idempotent-Replayed"), post(h, "closed").Code)
	// Output: 402 true 500
}

// The type of a Problem Details object ends with a Reason.
func ExampleReason() {
	guard, err := httpidem.New(httpidem.Config[*deduptest.Tx]{
		Name: "payments-api", Store: deduptest.NewStore(), Secrets: [][]byte{exampleSecret},
		Principal: httpidem.Anonymous,
	})
	if err != nil {
		panic(err)
	}
	w := post(guard.Handle(func(context.Context, *deduptest.Tx, http.ResponseWriter, *http.Request) error { return nil }), "")
	var problem struct{ Type, Title, Detail string }
	if err := json.Unmarshal(w.Body.Bytes(), &problem); err != nil {
		panic(err)
	}
	fmt.Println(w.Code, problem.Type)
	// Output: 400 https://pkg.go.dev/github.com/txonce/txonce/adapters/httpidem#MissingKey
}

// Hooks count outcomes.
func ExampleTrace() {
	count := map[string]int{}
	hook := func(name string) func(context.Context, httpidem.Event) {
		return func(_ context.Context, e httpidem.Event) { count[fmt.Sprint(name, " ", e.Status)]++ }
	}
	guard, err := httpidem.New(httpidem.Config[*deduptest.Tx]{
		Name: "payments-api", Store: deduptest.NewStore(), Secrets: [][]byte{exampleSecret},
		Principal: httpidem.Anonymous,
		Trace:     &httpidem.Trace{Committed: hook("committed"), Replayed: hook("replayed"), Refused: hook("refused")},
	})
	if err != nil {
		panic(err)
	}
	h := guard.Handle(func(_ context.Context, tx *deduptest.Tx, _ http.ResponseWriter, _ *http.Request) error {
		return tx.Add("charge")
	})
	for range 3 {
		post(h, "k1")
	}
	post(h, "")
	fmt.Println(count)
	// Output: map[committed 200:1 refused 400:1 replayed 200:2]
}

// An Event has what a line of an access log needs, and never the key.
func ExampleEvent() {
	refused := func(_ context.Context, e httpidem.Event) {
		fmt.Println(e.Guard, e.Request.Method, e.Request.URL.Path, e.Status, e.Reason)
	}
	guard, err := httpidem.New(httpidem.Config[*deduptest.Tx]{
		Name: "payments-api", Store: deduptest.NewStore(), Secrets: [][]byte{exampleSecret},
		Principal: httpidem.Anonymous,
		Trace:     &httpidem.Trace{Refused: refused},
	})
	if err != nil {
		panic(err)
	}
	post(guard.Handle(func(context.Context, *deduptest.Tx, http.ResponseWriter, *http.Request) error { return nil }), "")
	// Output: payments-api POST /payments 400 MissingKey
}

// A rate limiter lets repeats pass, which run no handler, and counts new requests.
func ExampleGuard_Peek() {
	guard, err := httpidem.New(httpidem.Config[*deduptest.Tx]{
		Name: "payments-api", Store: deduptest.NewStore(), Secrets: [][]byte{exampleSecret},
		Principal: httpidem.Anonymous,
	})
	if err != nil {
		panic(err)
	}
	pay := guard.Handle(func(_ context.Context, tx *deduptest.Tx, _ http.ResponseWriter, _ *http.Request) error {
		return tx.Add("charge")
	})
	left := 1
	limited := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		repeat, err := guard.Peek(r)
		switch {
		case err == nil && repeat:
		case left == 0:
			http.Error(w, "too many requests", http.StatusTooManyRequests)
			return
		default:
			left--
		}
		pay.ServeHTTP(w, r)
	})
	fmt.Println(post(limited, "k1").Code, post(limited, "k1").Code, post(limited, "k2").Code)
	// Output: 200 200 429
}

// One line for each request says what was decided about its key.
func ExampleLogDecisions() {
	plain := slog.New(slog.NewTextHandler(os.Stdout, &slog.HandlerOptions{
		ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if slices.Contains([]string{"time", "took", "age", "key", "pattern"}, a.Key) { // they vary, or are long
				return slog.Attr{}
			}
			return a
		},
	}))
	guard, err := httpidem.New(httpidem.Config[*deduptest.Tx]{
		Name: "payments-api", Store: deduptest.NewStore(), Secrets: [][]byte{exampleSecret},
		Principal: httpidem.Anonymous, Trace: httpidem.LogDecisions(plain),
	})
	if err != nil {
		panic(err)
	}
	pay := guard.Handle(func(_ context.Context, tx *deduptest.Tx, _ http.ResponseWriter, _ *http.Request) error {
		return tx.Add("charge")
	})
	post(pay, "k1")
	post(pay, "k1")
	post(pay, "")
	// Output:
	// level=INFO msg="httpidem: request" guard=payments-api method=POST decision=new status=200
	// level=INFO msg="httpidem: request" guard=payments-api method=POST decision=replayed status=200
	// level=INFO msg="httpidem: request" guard=payments-api method=POST decision=refused status=400 reason=MissingKey
}
