package httpidem_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/txonce/txonce/adapters/httpidem"
	"github.com/txonce/txonce/adapters/pgxstore"
)

// BenchmarkGuard compares a handler behind a Guard with the same handler in a bare transaction, with bodies and
// responses of 1 kB, and with a replay. By hand is the least that can keep a key and its response: BEGIN with the
// claim, the handler, and the response with COMMIT, in as many round trips as bare, without any check of the request or
// of the transaction.
func BenchmarkGuard(b *testing.B) {
	e := allEngines[0]
	pool, err := pgxpool.New(b.Context(), e.Create(b))
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(pool.Close)
	store, err := pgxstore.New(pgxstore.Config{Pool: pool})
	if err != nil {
		b.Fatal(err)
	}
	guard, err := httpidem.New(httpidem.Config[pgx.Tx]{
		Name: "bench", Store: store, Secrets: [][]byte{secret("a")}, Principal: httpidem.Anonymous,
		Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		b.Fatal(err)
	}
	kilobyte := bytes.Repeat([]byte("x"), 1024)
	order := func(ctx context.Context, tx pgx.Tx, w http.ResponseWriter, _ *http.Request) error {
		if _, err := tx.Exec(ctx, e.Insert, "bench", "x"); err != nil {
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
	if _, err := pool.Exec(b.Context(), `CREATE TABLE by_hand (key text PRIMARY KEY, created timestamptz DEFAULT now(), response bytea)`); err != nil {
		b.Fatal(err)
	}
	byHand := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		buffered := httptest.NewRecorder()
		err := pool.AcquireFunc(r.Context(), func(conn *pgxpool.Conn) error {
			key, claim := r.Header.Get("Idempotency-Key"), &pgx.Batch{}
			claim.BeginTx(pgx.TxOptions{})
			claim.Queue(`INSERT INTO by_hand (key) VALUES ($1) ON CONFLICT DO NOTHING`, key)
			claimed := conn.SendBatch(r.Context(), claim)
			tx := claimed.Tx()
			if err := claimed.Close(); err != nil {
				return err
			}
			if err := order(r.Context(), tx, buffered, r); err != nil {
				return err
			}
			commit := &pgx.Batch{}
			commit.Queue(`UPDATE by_hand SET response = $2 WHERE key = $1`, key, buffered.Body.Bytes())
			commit.Queue(`COMMIT`)
			return conn.SendBatch(r.Context(), commit).Close()
		})
		if err != nil {
			http.Error(w, "failed", http.StatusInternalServerError)
			return
		}
		w.WriteHeader(buffered.Code)
		_, _ = w.Write(buffered.Body.Bytes())
	})
	guarded := guard.Handle(order)
	request := func(key string) *http.Request {
		r := httptest.NewRequestWithContext(b.Context(), http.MethodPost, "/orders", bytes.NewReader(kilobyte))
		r.Header.Set("Idempotency-Key", key)
		return r
	}
	fresh := func() string { return rand.Text() }
	replayed := func() string { return "replay" }
	kinds := []struct {
		name string
		h    http.Handler
		key  func() string
	}{{"bare", bare, fresh}, {"guarded", guarded, fresh}, {"replay", guarded, replayed}, {"byhand", byHand, fresh}}
	serve(guarded, request("replay"))
	for _, kind := range kinds {
		b.Run(kind.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if w := serve(kind.h, request(kind.key())); w.Code != http.StatusCreated {
					b.Fatal(w.Code, w.Body)
				}
			}
		})
	}
	// On a machine that others use, only requests that take turns can be compared.
	b.Run("ratios", func(b *testing.B) {
		took := make([][]time.Duration, len(kinds))
		for b.Loop() {
			for i, kind := range kinds {
				r := request(kind.key())
				began := time.Now()
				serve(kind.h, r)
				took[i] = append(took[i], time.Since(began))
			}
		}
		median := func(i int) float64 {
			slices.Sort(took[i])
			return float64(took[i][len(took[i])/2])
		}
		b.ReportMetric(median(0)/1000, "bare-µs")
		b.ReportMetric(median(1)/median(0), "guarded/bare")
		b.ReportMetric(median(2)/median(0), "replay/bare")
		b.ReportMetric(median(3)/median(0), "byhand/bare")
	})
}
