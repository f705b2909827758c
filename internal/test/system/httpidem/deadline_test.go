package httpidem_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/txonce/txonce/dedup/deduptest"
)

// TestReadDeadline: a handler that limits the reading of its body, as handlers do against slow clients, must not break
// the connection for the requests that follow on it. net/http lifts the deadline at the end of the body, and behind
// httpidem the body was read before.
func TestReadDeadline(t *testing.T) {
	slowBody := func(w http.ResponseWriter, r *http.Request) error {
		if err := http.NewResponseController(w).SetReadDeadline(time.Now().Add(50 * time.Millisecond)); err != nil {
			return err
		}
		if _, err := io.ReadAll(r.Body); err != nil {
			return err
		}
		<-time.After(200 * time.Millisecond)
		w.WriteHeader(http.StatusCreated)
		return nil
	}
	a := newAPI(t)
	for name, h := range map[string]http.Handler{
		"net/http alone": http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if err := r.Context().Err(); err != nil {
				t.Errorf("net/http alone: %v", err)
			}
			if err := slowBody(w, r); err != nil {
				t.Error(err)
			}
		}),
		"guarded": a.guard.Handle(func(_ context.Context, _ *deduptest.Tx, w http.ResponseWriter, r *http.Request) error {
			return slowBody(w, r)
		}),
	} {
		t.Run(name, func(t *testing.T) {
			s := httptest.NewServer(h)
			defer s.Close()
			for i, key := range []string{"one", "two", "three"} {
				if status, _, text := overHTTP(t, s.URL+"/orders", key, "body"); status != http.StatusCreated {
					t.Errorf("request %d: %d %s", i, status, text)
				}
			}
		})
	}
}
