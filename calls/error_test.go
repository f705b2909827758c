package calls_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/txonce/txonce/calls"
	"github.com/txonce/txonce/outbox"
)

func TestErrorOf(t *testing.T) {
	for _, tt := range []struct {
		status int
		after  string
		want   string // refused, not now, away, unknown or ""
		wait   time.Duration
	}{
		{200, "", "", 0},
		{201, "", "", 0},
		{302, "", "unknown", 0},
		{400, "", "refused", 0},
		{402, "", "refused", 0},
		{408, "", "unknown", 0},
		{409, "", "unknown", 0},
		{425, "", "unknown", 0},
		{429, "3", "not now", 3 * time.Second},
		{429, "", "not now", 0},
		{429, "9999999", "not now", 10 * time.Minute},
		{429, "soon", "not now", 0},
		{429, "Fri, 01 Jan 2100 00:00:00 GMT", "not now", 10 * time.Minute},
		{500, "3", "unknown", 0},
		{503, "", "unknown", 0},
		{503, "3", "away", 3 * time.Second},
		{401, "", "not now", 0},
		{407, "", "not now", 0},
	} {
		b := newBank(t, func(b *bank) {
			b.cfg.Do = func(context.Context, calls.Call) (calls.Result, error) {
				return nil, calls.ErrorOf(&http.Response{StatusCode: tt.status, Header: http.Header{"Retry-After": {tt.after}}})
			}
		})
		err, got, wait := b.publish("a", 0), "", time.Duration(0)
		var unavailable *outbox.UnavailableError
		away := errors.As(err, &unavailable)
		if away {
			wait = unavailable.After
		}
		switch {
		case err == nil:
		case away && inDoubt(err):
			got = "away"
		case away:
			got = "not now"
		case outbox.IsPermanent(err):
			got = "refused"
		case inDoubt(err):
			got = "unknown"
		}
		if got != tt.want || wait != tt.wait {
			t.Errorf("%d, Retry-After %q: %q after %v (%v), want %q after %v", tt.status, tt.after, got, wait, err, tt.want, tt.wait)
		}
	}
}

// http.Client turns a POST into a GET when it follows a redirect.
func TestErrorOfAfterARedirect(t *testing.T) {
	mux := http.NewServeMux()
	mux.HandleFunc("/found", func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/again", http.StatusFound) })
	mux.HandleFunc("/again", func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/ok", http.StatusTemporaryRedirect) })
	mux.HandleFunc("/ok", func(http.ResponseWriter, *http.Request) {})
	server := httptest.NewServer(mux)
	defer server.Close()
	for _, tt := range []struct {
		method, path string
		happened     bool
	}{
		{http.MethodPost, "/ok", true},
		{http.MethodPost, "/again", true},
		{http.MethodPost, "/found", false},
		{http.MethodGet, "/found", true},
	} {
		r, err := http.NewRequestWithContext(t.Context(), tt.method, server.URL+tt.path, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		response, err := server.Client().Do(r)
		if err != nil {
			t.Fatal(err)
		}
		response.Body.Close()
		if err := calls.ErrorOf(response); (err == nil) != tt.happened || err != nil && outbox.IsPermanent(err) {
			t.Errorf("%s %s: %v", tt.method, tt.path, err)
		}
	}
}
