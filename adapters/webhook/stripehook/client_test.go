package stripehook_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/txonce/txonce/adapters/webhook/stripehook"
)

// Each fault is followed by a right answer.
func TestBackfillRepeatsRequests(t *testing.T) {
	unavailable, limited := http.StatusServiceUnavailable, http.StatusTooManyRequests
	for _, tt := range []struct {
		name     string
		faults   []http.HandlerFunc
		requests int
		waits    time.Duration // at least; and at most twice that and a minute
	}{
		{
			"a rate limit",
			[]http.HandlerFunc{problem(limited, "invalid_request_error", "rate_limit")},
			2,
			250 * time.Millisecond,
		},
		{
			"a rate limit that says how long",
			[]http.HandlerFunc{problem(limited, "", "", "Retry-After", "77")},
			2,
			77 * time.Second,
		},
		{"a rate limit that says far too long", []http.HandlerFunc{problem(limited, "", "", "Retry-After", "99999999999")}, 2, 5 * time.Minute},
		{
			"a rate limit that says a day",
			[]http.HandlerFunc{problem(limited, "", "", "Retry-After", "86400")},
			2,
			5 * time.Minute,
		},
		{
			"a rate limit that says something else",
			[]http.HandlerFunc{problem(limited, "", "", "Retry-After", "-5")},
			2,
			250 * time.Millisecond,
		},
		{"an error of Stripe", []http.HandlerFunc{problem(http.StatusInternalServerError, "api_error", ""), problem(http.StatusBadGateway, "", "")}, 3, 750 * time.Millisecond},
		{"a conflict", []http.HandlerFunc{problem(http.StatusConflict, "", "")}, 2, 250 * time.Millisecond},
		{"Stripe wants a repeat", []http.HandlerFunc{problem(http.StatusBadRequest, "", "", "Stripe-Should-Retry", "true")}, 2, 250 * time.Millisecond},
		{"no answer", []http.HandlerFunc{cut("")}, 2, 0}, // net/http may repeat it by itself
		{
			"half an answer",
			[]http.HandlerFunc{cut(`{"object": "list", "has_more": false, "data": [`)},
			2,
			250 * time.Millisecond,
		},
		{"a page of something in between", []http.HandlerFunc{answer("<html>")}, 2, 250 * time.Millisecond},
		{"an empty answer", []http.HandlerFunc{answer("")}, 2, 250 * time.Millisecond},
		{
			"another object",
			[]http.HandlerFunc{answer(`{"object": "event", "has_more": false, "data": []}`)},
			2,
			250 * time.Millisecond,
		},
		{"a list that does not say whether it is complete", []http.HandlerFunc{answer(`{"object": "list", "data": []}`)}, 2, 250 * time.Millisecond},
		{"a list with more after nothing", []http.HandlerFunc{answer(`{"object": "list", "has_more": true, "data": []}`)}, 2, 250 * time.Millisecond},
		{
			"seven times",
			[]http.HandlerFunc{cut("{"), cut("{"), cut("{"), cut("{"), cut("{"), cut("{"), cut("{")},
			8,
			20 * time.Second,
		},
		{
			"on a later page",
			[]http.HandlerFunc{nil, nil, problem(unavailable, "", ""), nil, cut("{")},
			6,
			time.Second / 2,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			bubble(t, func(t *testing.T, w *world) {
				w.stripe.add(events(350, time.Minute)...)
				w.stripe.fail(tt.faults...)
				began := time.Now()
				w.once(t, w.backfill(t))
				w.wantEffects(t, 350)
				if waited := time.Since(began); waited < tt.waits || waited > 2*tt.waits+time.Minute {
					t.Errorf("waited %v, want %v", waited, tt.waits)
				}
				want := tt.requests + 3
				if tt.name == "on a later page" {
					want = tt.requests
				}
				if n := len(w.stripe.taken()); n != want {
					t.Errorf("%d requests, want %d", n, want)
				}
			})
		})
	}
}

// What a repeat cannot help against ends the pass. The next pass goes on.
func TestBackfillGivesARequestUp(t *testing.T) {
	for _, tt := range []struct {
		name     string
		faults   []http.HandlerFunc
		requests int
		want     string
	}{
		{"a wrong key", []http.HandlerFunc{problem(http.StatusUnauthorized, "invalid_request_error", "api_key_expired")}, 1, "Stripe answered 401 invalid_request_error api_key_expired req_1"},
		{"a bad request", []http.HandlerFunc{problem(http.StatusBadRequest, "invalid_request_error", "parameter_unknown")}, 1, "Stripe answered 400"},
		{"Stripe wants no repeat", []http.HandlerFunc{problem(http.StatusServiceUnavailable, "", "", "Stripe-Should-Retry", "false")}, 1, "Stripe answered 503"},
		{"a redirect", []http.HandlerFunc{func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Location", "http://127.0.0.1/v1/elsewhere")
			w.WriteHeader(http.StatusFound)
		}}, 1, "Stripe answered 302"},
		{"for ever", []http.HandlerFunc{
			problem(500, "", ""), problem(500, "", ""), problem(500, "", ""), problem(500, "", ""),
			problem(500, "", ""), problem(500, "", ""), problem(500, "", ""), problem(529, "", ""),
		}, 8, "after 8 tries: Stripe answered 529"},
		{"a text in place of a type", []http.HandlerFunc{problem(http.StatusBadRequest, "with spaces", strings.Repeat("x", 65))}, 1, "Stripe answered 400 req_1"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			bubble(t, func(t *testing.T, w *world) {
				w.stripe.add(event(1, time.Minute))
				w.stripe.fail(tt.faults...)
				b := w.backfill(t)
				err := b.Once(t.Context())
				if err == nil || !strings.HasSuffix(err.Error(), tt.want) && !strings.Contains(err.Error(),
					tt.want+" ") {
					t.Fatalf("error %v, want %s", err, tt.want)
				}
				if answered, ok := errors.AsType[*stripehook.APIError](err); ok != strings.Contains(tt.want,
					"answered") || ok && answered.Status < 300 {
					t.Errorf("error %v is an APIError: %v", err, ok)
				}
				if strings.Contains(err.Error(), liveKey) {
					t.Errorf("the error shows the key: %v", err)
				}
				if n := len(w.stripe.taken()); n != tt.requests {
					t.Errorf("%d requests, want %d", n, tt.requests)
				}
				w.stripe.faults = nil
				w.once(t, b)
				w.wantEffects(t, 1)
			})
		})
	}
}

// A context that ends stops a wait, and is the error.
func TestBackfillStopsWaiting(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.stripe.fail(problem(http.StatusTooManyRequests, "", "", "Retry-After", "200"))
		ctx, stop := context.WithTimeout(t.Context(), 10*time.Second)
		defer stop()
		began := time.Now()
		if err := w.backfill(t).Once(ctx); !errors.Is(err, context.DeadlineExceeded) ||
			time.Since(began) != 10*time.Second {
			t.Errorf("error %v after %v", err, time.Since(began))
		}
	})
}

// A server that never answers is a failure of the network.
func TestBackfillRequestTimeout(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.stripe.add(event(1, time.Minute))
		w.stripe.fail(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
		began := time.Now()
		w.once(t, w.backfill(t))
		w.wantEffects(t, 1)
		if waited := time.Since(began); waited < time.Minute || waited > 2*time.Minute {
			t.Errorf("waited %v, want a minute and a bit", waited)
		}
	})
}

func TestGet(t *testing.T) {
	newClient := func(t *testing.T, h http.HandlerFunc) *stripehook.Client {
		c, err := stripehook.NewClient(stripehook.ClientConfig{
			APIKey: testKey, Mode: stripehook.Test,
			HTTP: serve(t, h), BaseURL: "http://localhost/",
		})
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	t.Run("the object of an event", func(t *testing.T) {
		c := newClient(t, func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path != "/v1/invoices/in_1" || r.Header.Get("Stripe-Account") != "acct_2" ||
				r.Header.Get("Authorization") != "Bearer "+testKey {
				t.Errorf("%v, %v", r.URL, r.Header)
			}
			answer(`{"id":"in_1"}`)(w, r)
		})
		if got, err := c.Get(t.Context(), "/v1/invoices/in_1", "acct_2"); err != nil || string(got) != `{"id":"in_1"}` {
			t.Errorf("%s, error %v", got, err)
		}
	})
	t.Run("a missing object", func(t *testing.T) {
		c := newClient(t, problem(http.StatusNotFound, "invalid_request_error", "resource_missing"))
		_, err := c.Get(t.Context(), "/v1/invoices/in_2", "")
		if answered, ok := errors.AsType[*stripehook.APIError](err); !ok || answered.Code != "resource_missing" {
			t.Errorf("error %v", err)
		}
	})
	t.Run("the key goes nowhere else", func(t *testing.T) {
		c := newClient(t, func(_ http.ResponseWriter, r *http.Request) { t.Errorf("a request to %v", r.URL) })
		for _, path := range []string{
			"", "/", "v1/invoices", "https://evil.example/v1/x", "//evil.example/v1/x",
			"@evil.example/v1/x", ".evil.example/v1/", "/v1/../../x", "/v3/x", "/v1/%zz",
		} {
			if _, err := c.Get(t.Context(), path, ""); err == nil {
				t.Errorf("%q is accepted", path)
			}
		}
		if _, err := c.Get(t.Context(), "/v1/x", "acct_1\r\nX: y"); err == nil {
			t.Error("an account with a line break is accepted")
		}
	})
}
