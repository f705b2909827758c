package httpidem_test

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/txonce/txonce/adapters/httpidem"
	"github.com/txonce/txonce/adapters/pgxstore"
)

// countTrips counts queries and batches: each is one round trip.
type countTrips struct{ n atomic.Int64 }

func (c *countTrips) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	c.n.Add(1)
	return ctx
}
func (c *countTrips) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}
func (c *countTrips) TraceBatchStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceBatchStartData) context.Context {
	c.n.Add(1)
	return ctx
}
func (c *countTrips) TraceBatchQuery(context.Context, *pgx.Conn, pgx.TraceBatchQueryData) {}
func (c *countTrips) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData)     {}

// A guarded request takes no more round trips than the handler's transaction alone. A replay takes one in the process
// that has answered the request, and two in another one.
func TestRoundTrips(t *testing.T) {
	if testing.Short() {
		t.Skip("needs a server")
	}
	e := allEngines[0]
	cfg, err := pgxpool.ParseConfig(e.Create(t))
	if err != nil {
		t.Fatal(err)
	}
	trips := &countTrips{}
	cfg.ConnConfig.Tracer, cfg.MaxConns = trips, 1
	pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	process := func() http.Handler {
		store, err := pgxstore.New(pgxstore.Config{Pool: pool})
		if err != nil {
			t.Fatal(err)
		}
		guard, err := httpidem.New(httpidem.Config[pgx.Tx]{
			Name: "orders", Store: store, Secrets: [][]byte{secret("a")}, Principal: httpidem.Anonymous,
			Logger: slog.New(slog.DiscardHandler),
		})
		if err != nil {
			t.Fatal(err)
		}
		return guard.Handle(func(ctx context.Context, tx pgx.Tx, w http.ResponseWriter, _ *http.Request) error {
			w.WriteHeader(http.StatusCreated)
			_, err := tx.Exec(ctx, e.Insert, "orders", "x")
			return err
		})
	}
	one, other := process(), process()
	send := func(h http.Handler, key string) int64 {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/orders", strings.NewReader("{}"))
		r.Header.Set("Idempotency-Key", key)
		before := trips.n.Load()
		if w := serve(h, r); w.Code != http.StatusCreated {
			t.Fatal(w.Code, w.Body)
		}
		return trips.n.Load() - before
	}
	for range 2 { // registrations, and statements that are prepared
		send(one, "warm")
		send(other, "warm")
	}
	for _, tt := range []struct {
		name string
		got  int64
		want int64
	}{
		{"new", send(one, "k"), 3},
		{"replay", send(one, "k"), 1},
		{"replay in another process", send(other, "k"), 2},
		{"second replay there", send(other, "k"), 1},
	} {
		if tt.got != tt.want {
			t.Errorf("%s: %d round trips, want %d", tt.name, tt.got, tt.want)
		}
	}
}
