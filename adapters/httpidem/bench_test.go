package httpidem_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/txonce/txonce/adapters/httpidem"
	"github.com/txonce/txonce/adapters/pgxstore"
)

// BenchmarkGuard compares a handler behind a Guard with the same handler in a bare transaction, with bodies and responses of 1 kB, and
// with a replay.
func BenchmarkGuard(b *testing.B) {
	e := engines[0]
	pool, err := pgxpool.New(b.Context(), e.create(b))
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(pool.Close)
	store, err := pgxstore.New(pgxstore.Config{Pool: pool})
	if err != nil {
		b.Fatal(err)
	}
	guard, err := httpidem.New(httpidem.Config[pgx.Tx]{
		Name: "bench", Store: store, Secrets: [][]byte{secret("a")}, Principal: httpidem.Anonymous, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		b.Fatal(err)
	}
	kilobyte := bytes.Repeat([]byte("x"), 1024)
	order := func(ctx context.Context, tx pgx.Tx, w http.ResponseWriter, _ *http.Request) error {
		if _, err := tx.Exec(ctx, e.insert, "bench", "x"); err != nil {
			return err
		}
		w.WriteHeader(http.StatusCreated)
		_, err := w.Write(kilobyte)
		return err
	}
	bare := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		buffered := httptest.NewRecorder() // nothing may reach the client before COMMIT
		err := pgx.BeginFunc(r.Context(), pool, func(tx pgx.Tx) error { return order(r.Context(), tx, buffered, r) })
		if err != nil {
			http.Error(w, "failed", http.StatusInternalServerError)
			return
		}
		w.WriteHeader(buffered.Code)
		_, _ = w.Write(buffered.Body.Bytes())
	})
	run := 0
	for _, bb := range []struct {
		name string
		h    http.Handler
		key  func(i int) string
	}{
		{"bare", bare, func(i int) string { return fmt.Sprint(run, "-", i) }},
		{"guarded", guard.Handle(order), func(i int) string { return fmt.Sprint(run, "-", i) }},
		{"replay", guard.Handle(order), func(int) string { return "replay" }},
	} {
		b.Run(bb.name, func(b *testing.B) {
			run++
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				r := httptest.NewRequestWithContext(b.Context(), http.MethodPost, "/orders", bytes.NewReader(kilobyte))
				r.Header.Set("Idempotency-Key", bb.key(i))
				w := httptest.NewRecorder()
				bb.h.ServeHTTP(w, r)
				if w.Code != http.StatusCreated {
					b.Fatal(w.Code, w.Body)
				}
			}
		})
	}
}
