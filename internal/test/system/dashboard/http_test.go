package dashboard_test

import (
	"context"
	"database/sql"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/txonce/txonce/adapters/dashboard"
	"github.com/txonce/txonce/adapters/httpidem"
	"github.com/txonce/txonce/internal/test/system/dashboardtest"
)

// An operator who has a client's Idempotency-Key is told what to ask for, and not that the request is new.
func TestExplainHTTP(t *testing.T) {
	t.Parallel()
	db := dashboardtest.SQLite(t)
	hash := ""
	guard, err := httpidem.New(httpidem.Config[*sql.Tx]{
		Name: "payments-api", Store: db.Store, Secrets: [][]byte{make([]byte, httpidem.MinSecret)},
		Principal: httpidem.Anonymous, Logger: slog.New(slog.DiscardHandler),
		Trace: &httpidem.Trace{Committed: func(_ context.Context, e httpidem.Event) { hash = e.Key }},
	})
	if err != nil {
		t.Fatal(err)
	}
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/payments", http.NoBody)
	r.Header.Set("Idempotency-Key", "k-1")
	guard.Handle(func(context.Context, *sql.Tx, http.ResponseWriter, *http.Request) error { return nil }).
		ServeHTTP(httptest.NewRecorder(), r)
	s := newSite(t, dashboard.Config{Store: db.Operator()})
	s.want("explain?consumer=payments-api&key=k-1", 400, "hashes of HTTP requests", "txonce explain --http")
	s.want("explain?consumer=payments-api&key="+hash, 200, "The HTTP request was completed", "duplicate")
	s.want("explain?outbox=1&consumer=payments-api&key="+hash, 200, "derived from its content, too")
	s.want("explain?consumer=payments-api&key="+hash[1:]+"0", 200, "No HTTP request with this hash was completed")
	s.want("consumers", 200, "HTTP requests")
}
