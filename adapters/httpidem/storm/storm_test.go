package storm_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/txonce/txonce/adapters/httpidem"
	"github.com/txonce/txonce/adapters/httpidem/storm"
	"github.com/txonce/txonce/dedup/deduptest"
)

// api is an API for tests, and how many effects it had.
type api struct {
	http.Handler
	effects func() int
}

// guarded takes orders behind a Guard.
func guarded(t *testing.T) api {
	store := deduptest.NewStore()
	guard, err := httpidem.New(httpidem.Config[*deduptest.Tx]{
		Name: "api", Store: store, Secrets: [][]byte{bytes.Repeat([]byte("s"), httpidem.MinSecret)},
		Principal: httpidem.Anonymous, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	return api{guard.Handle(func(ctx context.Context, tx *deduptest.Tx, w http.ResponseWriter, _ *http.Request) error {
		select {
		case <-time.After(5 * time.Millisecond):
		case <-ctx.Done():
			return ctx.Err()
		}
		w.WriteHeader(http.StatusCreated)
		fmt.Fprint(w, rand.Text())
		return tx.Add("order")
	}), func() int { return store.Database().Count("order") }}
}

// plain answers each request with a status and a body, and has an effect if effect is true.
func plain(status int, effect bool, body func() string) func(*testing.T) api {
	return func(*testing.T) api {
		var n atomic.Int64
		return api{http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			if effect {
				n.Add(1)
			}
			w.WriteHeader(status)
			fmt.Fprint(w, body())
		}), func() int { return int(n.Load()) }}
	}
}

func same() string { return "ok" }

// What an API does, and what the report says about it.
func TestRun(t *testing.T) {
	for _, tt := range []struct {
		name     string
		api      func(*testing.T) api
		counted  bool
		findings []string
		note     string
	}{
		{"a Guard", guarded, true, nil, ""},
		{"a handler that runs each time, with answers of its own", plain(201, true, rand.Text), true, []string{
			"different answers with 2xx: the request ran more than once", "too many",
		}, ""},
		{
			"a handler that runs each time, with equal answers", plain(201, true, same), true,
			[]string{"too many"},
			"Idempotent-Replayed",
		},
		{
			"the same, and nobody counts", plain(201, true, same), false, nil,
			"they cannot show how often a handler ran",
		},
		{"a handler that has no effect", plain(201, false, same), true, []string{"are missing"}, ""},
		{
			"a server that never has time", plain(503, false, same), true,
			[]string{"got no final answer", "no key got a 2xx"},
			"",
		},
		{"a server that refuses", plain(401, false, same), true, []string{"no key got a 2xx: map[401:"}, ""},
	} {
		for _, jitter := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, jitter %t", tt.name, jitter), func(t *testing.T) {
				t.Parallel()
				a := tt.api(t)
				server := httptest.NewServer(a)
				defer server.Close()
				cfg := storm.Config{
					URL: server.URL, Keys: 4, Clients: 8, Tries: 6, Cuts: .4, CutWithin: 10 * time.Millisecond,
					Backoff: 2 * time.Millisecond, Jitter: jitter, Settle: 50 * time.Millisecond,
				}
				if tt.counted {
					cfg.Effects = func(context.Context) (int, error) { return a.effects(), nil }
				}
				r, err := storm.Run(t.Context(), cfg)
				if err != nil {
					t.Fatal(err)
				}
				text := strings.Join(r.Findings, "\n")
				for _, want := range tt.findings {
					if !strings.Contains(text, want) {
						t.Errorf("no finding %q in\n%s", want, text)
					}
				}
				if len(tt.findings) == 0 && text != "" {
					t.Errorf("findings:\n%s", text)
				}
				if !strings.Contains(strings.Join(r.Notes, "\n"), tt.note) {
					t.Errorf("no note %q in %q", tt.note, r.Notes)
				}
				answers := 0
				for _, n := range r.Statuses {
					answers += n
				}
				if r.Requests != answers+r.Cut+r.Failed || r.Final+r.NoAnswer != 32 || r.Latency.Max < r.Latency.P50 {
					t.Errorf("%+v", r)
				}
			})
		}
	}
}
