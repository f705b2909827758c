package main

import (
	"context"
	"database/sql"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync/atomic"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/txonce/txonce/adapters/httpidem"
	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/dedup/deduptest"
	"github.com/txonce/txonce/internal/httpkey"
)

// scriptSecret is the content of the file secret of http.txtar.
const scriptSecret = "0123456789abcdef0123456789abcdef"

// request NAME PRINCIPAL METHOD TARGET KEY STATUS: an HTTP request to a Guard of that name, whose handler answers with
// the status.
func request(ts *testscript.TestScript, _ bool, args []string) {
	store, err := seedsOf(ts).store()
	ts.Check(err)
	status, err := strconv.Atoi(args[5])
	ts.Check(err)
	guard, err := httpidem.New(httpidem.Config[*sql.Tx]{
		Name: args[0], Store: store, Secrets: [][]byte{[]byte(scriptSecret)}, Logger: slog.New(slog.DiscardHandler),
		Principal: func(*http.Request) (string, error) { return args[1], nil },
	})
	ts.Check(err)
	r := httptest.NewRequestWithContext(seedsOf(ts).t.Context(), args[2], args[3], http.NoBody)
	r.Header.Set("Idempotency-Key", args[4])
	w := httptest.NewRecorder()
	guard.Handle(func(_ context.Context, _ *sql.Tx, w http.ResponseWriter, _ *http.Request) error {
		w.WriteHeader(status)
		return nil
	}).ServeHTTP(w, r)
	if w.Code != status {
		ts.Fatalf("the request got %d: %s", w.Code, w.Body)
	}
}

// api guarded|unguarded: an API with the paths /payments and /count, with a Guard or without. API is its URL.
func startAPI(ts *testscript.TestScript, _ bool, args []string) {
	store := deduptest.NewStore()
	guard, err := httpidem.New(httpidem.Config[*deduptest.Tx]{
		Name: "api", Store: store, Secrets: [][]byte{[]byte(scriptSecret)}, Logger: slog.New(slog.DiscardHandler),
		Principal: func(r *http.Request) (string, error) { return r.Header.Get("Authorization"), nil },
	})
	ts.Check(err)
	var payments atomic.Int64
	pay := func(w http.ResponseWriter) {
		w.WriteHeader(http.StatusCreated)
		fmt.Fprint(w, payments.Add(1))
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /count", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, payments.Load()) })
	if args[0] == "guarded" {
		mux.Handle("POST /payments", guard.Handle(func(_ context.Context, _ *deduptest.Tx, w http.ResponseWriter, _ *http.Request) error {
			pay(w)
			return nil
		}))
	} else {
		mux.HandleFunc("POST /payments", func(w http.ResponseWriter, _ *http.Request) { pay(w) })
	}
	server := httptest.NewServer(mux)
	ts.Defer(server.Close)
	ts.Setenv("API", server.URL)
}

// requesthash NAME PRINCIPAL METHOD TARGET KEY: sets REQUEST to the hash of the request.
func requestHash(ts *testscript.TestScript, _ bool, args []string) {
	i := httpkey.Identity{Name: args[0], Principal: args[1], Method: args[2], Target: args[3], Key: args[4]}
	ts.Setenv("REQUEST", i.Under([]byte(scriptSecret)))
}

// hook NAME TENANT ID: an event of a webhook that is processed.
func hook(ts *testscript.TestScript, _ bool, args []string) {
	c, err := seedsOf(ts).consumer(args[0], func(context.Context, *sql.Tx, *consumer.Message) error { return nil })
	ts.Check(err)
	defer c.Close()
	c.AddSource("webhook stripe")
	m := delivery(args[2], "{}")
	m.Tenant = args[1]
	ts.Check(c.Process(seedsOf(ts).t.Context(), m))
}
