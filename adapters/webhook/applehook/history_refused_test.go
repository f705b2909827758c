package applehook_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/txonce/txonce/adapters/webhook/applehook/appletest"
)

// Errors that a person must correct: the pass ends, after few requests.
func TestBackfillRefused(t *testing.T) {
	for _, tt := range []struct {
		name     string
		change   func(*world, *backfillConfig)
		requests int
		text     string
	}{
		{"another key", func(w *world, cfg *backfillConfig) { cfg.PrivateKey, _ = newKey(w) }, 1, "401"},
		{"another issuer", func(_ *world, cfg *backfillConfig) { cfg.IssuerID = "other" }, 1, "claims"},
		{"another key ID", func(_ *world, cfg *backfillConfig) { cfg.KeyID = "OTHER" }, 1, "header"},
		{"a bad request", func(w *world, _ *backfillConfig) {
			w.api.Fail = func(rw http.ResponseWriter, _ *http.Request, _ int) bool {
				appletest.Refuse(rw, 400, 4000002, "Invalid request. The app identifier is invalid.")
				return true
			}
		}, 1, "app identifier"},
		{"a redirect, which might take the token elsewhere", func(w *world, _ *backfillConfig) {
			w.api.Fail = func(rw http.ResponseWriter, r *http.Request, _ int) bool {
				http.Redirect(rw, r, "https://elsewhere.example"+appletest.Path, http.StatusTemporaryRedirect)
				return true
			}
		}, 1, "307"},
		{
			"a page that leads to itself", func(w *world, _ *backfillConfig) { w.api.Fail = pagesInACircle("x") }, 2,
			"without end",
		},
		{"pages that lead to each other", func(w *world, _ *backfillConfig) { w.api.Fail = pagesInACircle("x", "y", "z") }, 4, "without end"},
		{"a pagination token that never works", func(w *world, _ *backfillConfig) {
			w.api.Fail = func(rw http.ResponseWriter, r *http.Request, _ int) bool {
				if r.URL.Query().Get("paginationToken") != "" {
					appletest.Refuse(rw, 400, 4000017, "Invalid request. The pagination token is expired.")
					return true
				}
				_, _ = io.WriteString(rw, `{"hasMore": true, "paginationToken": "a+b/c=&d", "notificationHistory": []}`)
				return true
			}
		}, 12, "expired"},
		{"a start date that is always too old", func(w *world, _ *backfillConfig) {
			w.api.Fail = func(rw http.ResponseWriter, _ *http.Request, _ int) bool {
				appletest.Refuse(rw, 400, 4000012,
					"Invalid request. The start date is earlier than the earliest allowed date.")
				return true
			}
		}, 6, "earliest allowed"},
	} {
		inBubble(t, tt.name, func(w *world) {
			w.missed(1)
			_, err := w.backfill(since, func(cfg *backfillConfig) { tt.change(w, cfg) }).Pass(w.Context())
			if err == nil || !strings.Contains(err.Error(), tt.text) || strings.Contains(err.Error(), "eyJ") {
				w.Errorf("Pass returns %v, want …%s…", err, tt.text)
			}
			if n := w.api.Requests(); n != tt.requests {
				w.Errorf("%d requests, want %d", n, tt.requests)
			}
			if !w.through().IsZero() {
				w.Errorf("the checkpoint is %v", w.through())
			}
			if err := w.backfill(since, func(cfg *backfillConfig) { tt.change(w, cfg) }).Run(w.Context()); err == nil {
				w.Error("Run returns nil")
			}
		})
	}
}

// pagesInACircle answers with pages whose tokens come again and again. After far too many it refuses.
func pagesInACircle(tokens ...string) func(http.ResponseWriter, *http.Request, int) bool {
	return func(w http.ResponseWriter, _ *http.Request, request int) bool {
		if request > 100 {
			appletest.Refuse(w, 400, 4000002, "Too many requests of this test.")
			return true
		}
		fmt.Fprintf(w, `{"hasMore": true, "paginationToken": %q, "notificationHistory": []}`,
			tokens[request%len(tokens)])
		return true
	}
}

// The fake refuses what Apple refuses, so that the tests above mean something.
func TestAPI(t *testing.T) {
	_, public := newKey(t)
	api := &appletest.API{Key: public, IssuerID: "issuer", KeyID: "KEY", BundleID: bundle}
	for _, authorization := range []string{"", "Bearer x", "Bearer a.b.c", "Basic eA=="} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "https://api.example"+appletest.Path,
			strings.NewReader(`{}`))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Authorization", authorization)
		resp, err := inProcess{api}.RoundTrip(r)
		if err != nil || resp.StatusCode != http.StatusUnauthorized {
			t.Errorf("%q: %v, %v", authorization, resp, err)
		}
	}
	if api.Requests() != 4 {
		t.Errorf("%d requests", api.Requests())
	}
}
