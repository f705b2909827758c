package httpidem_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/txonce/txonce/adapters/httpidem"
	"github.com/txonce/txonce/consumer/consumertest"
	"github.com/txonce/txonce/dedup/deduptest"
)

var exampleSecret = bytes.Repeat([]byte("secret"), 6) // openssl rand -base64 32

// A client sends a payment, gets no answer, and sends it again. It is charged once.
func ExampleGuard() {
	store := consumertest.NewStore() // pgxstore.New, sqlstore.New
	guard, err := httpidem.New(httpidem.Config[*deduptest.Tx]{
		Name: "payments-api", Store: store, Secrets: [][]byte{exampleSecret},
		Principal: func(r *http.Request) (string, error) { return r.Header.Get("X-Authenticated-User"), nil },
	})
	if err != nil {
		panic(err)
	}
	mux := http.NewServeMux()
	mux.Handle("POST /payments", guard.Handle(func(_ context.Context, tx *deduptest.Tx, w http.ResponseWriter, _ *http.Request) error {
		if err := tx.Add("charge"); err != nil {
			return err
		}
		w.WriteHeader(http.StatusCreated)
		fmt.Fprint(w, "paid")
		return nil
	}))
	for range 2 {
		r := httptest.NewRequest(http.MethodPost, "/payments", strings.NewReader(`{"amount": 10}`))
		r.Header.Set("Idempotency-Key", "8e03978e-40d5-43e8-bc93-6894a57f9324")
		r.Header.Set("X-Authenticated-User", "account 7, user 3")
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, r)
		fmt.Printf("%d %s, replayed: %q\n", w.Code, w.Body, w.Header().Get("Idempotent-Replayed"))
	}
	fmt.Println(store.Database().Count("charge"), "charge")
	// Output:
	// 201 paid, replayed: ""
	// 201 paid, replayed: "true"
	// 1 charge
}

// A handler that exists already gets its transaction from Tx.
func ExampleGuard_Wrap() {
	store := consumertest.NewStore()
	guard, err := httpidem.New(httpidem.Config[*deduptest.Tx]{
		Name: "shop-api", Store: store, Secrets: [][]byte{exampleSecret}, Principal: httpidem.Anonymous,
	})
	if err != nil {
		panic(err)
	}
	order := guard.Wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		tx, err := guard.Tx(r.Context())
		if err == nil {
			err = tx.Add("order")
		}
		if err != nil {
			http.Error(w, "no order", http.StatusInternalServerError) // rolls back
		}
	}))
	r := httptest.NewRequest(http.MethodPost, "/orders", nil)
	r.Header.Set("Idempotency-Key", "k1")
	w := httptest.NewRecorder()
	order.ServeHTTP(w, r)
	fmt.Println(w.Code, store.Database().Count("order"), "order")
	// Output: 200 1 order
}

// Two calls to another system have two keys, which are the same in each attempt.
func ExampleDownstreamKey() {
	guard, err := httpidem.New(httpidem.Config[*deduptest.Tx]{
		Name: "payments-api", Store: deduptest.NewStore(), Secrets: [][]byte{exampleSecret},
		Principal: httpidem.Anonymous,
		Logger:    slog.New(slog.DiscardHandler),
	})
	if err != nil {
		panic(err)
	}
	for range 2 {
		h := guard.Handle(func(ctx context.Context, _ *deduptest.Tx, _ http.ResponseWriter, _ *http.Request) error {
			charge, _ := httpidem.DownstreamKey(ctx, "charge")
			mail, _ := httpidem.DownstreamKey(ctx, "mail")
			fmt.Println(charge, charge == mail)
			return fmt.Errorf("the other system did not answer")
		})
		r := httptest.NewRequest(http.MethodPost, "/payments", nil)
		r.Header.Set("Idempotency-Key", "k1")
		h.ServeHTTP(httptest.NewRecorder(), r)
	}
	// Output:
	// 159059ea-ce0a-8995-8f26-d4f82d152166 false
	// 159059ea-ce0a-8995-8f26-d4f82d152166 false
}
