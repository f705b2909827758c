package dashboard_test

import (
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/txonce/txonce/adapters/dashboard"
	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/consumer/ops"
	"github.com/txonce/txonce/internal/test/parallel"
	"github.com/txonce/txonce/internal/test/system/dashboardtest"
)

func TestMain(m *testing.M) {
	parallel.Tests(4)
	os.Exit(m.Run())
}

func databases() map[string]func(testing.TB) *dashboardtest.DB {
	return map[string]func(testing.TB) *dashboardtest.DB{
		"sqlite":   dashboardtest.SQLite,
		"postgres": dashboardtest.Postgres,
	}
}

// each runs f on both databases.
func each(t *testing.T, f func(t *testing.T, db *dashboardtest.DB)) {
	t.Parallel()
	for name, open := range databases() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := open(t)
			db.Seed(t)
			f(t, db)
		})
	}
}

var errDenied = errors.New("denied")

// grants is a Config.Authorize that grants these permissions to ann.
func grants(granted ...dashboard.Permission) func(*http.Request, dashboard.Permission) (string, error) {
	return func(_ *http.Request, p dashboard.Permission) (string, error) {
		for _, g := range granted {
			if g == p {
				return "ann", nil
			}
		}
		return "", errDenied
	}
}

// site is a dashboard below a prefix, with its client.
type site struct {
	*httptest.Server
	t *testing.T
}

func newSite(t *testing.T, cfg dashboard.Config) site {
	t.Helper()
	if cfg.Authorize == nil {
		cfg.Authorize = grants(dashboard.View, dashboard.Payload, dashboard.Act)
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	d, err := dashboard.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.Handle("/txonce/", http.StripPrefix("/txonce", d))
	s := httptest.NewServer(mux)
	t.Cleanup(s.Close)
	t.Cleanup(d.Close)
	return site{s, t}
}

// get returns the status and the body of a page.
func (s site) get(path string) (int, string) {
	s.t.Helper()
	return s.do(http.MethodGet, path, nil, nil)
}

// post sends a form like a browser, and follows the redirect.
func (s site) post(path string, fields ...string) (int, string) {
	s.t.Helper()
	form := url.Values{}
	for i := 0; i+1 < len(fields); i += 2 {
		form.Add(fields[i], fields[i+1])
	}
	return s.do(http.MethodPost, path, form, nil)
}

func (s site) do(method, path string, form url.Values, header http.Header) (int, string) {
	s.t.Helper()
	r, err := http.NewRequestWithContext(s.t.Context(), method, s.URL+"/txonce/"+path, strings.NewReader(form.Encode()))
	if err != nil {
		s.t.Fatal(err)
	}
	if form != nil {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	for name, values := range header {
		r.Header[name] = values
		if name == "Host" {
			r.Host = values[0]
		}
	}
	res, err := s.Client().Do(r)
	if err != nil {
		s.t.Fatal(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	return res.StatusCode, string(body)
}

// want fails unless a page has the status and all texts.
func (s site) want(path string, status int, texts ...string) string {
	s.t.Helper()
	got, body := s.get(path)
	wantBody(s.t, path, got, body, status, texts...)
	return body
}

func wantBody(t *testing.T, what string, got int, body string, status int, texts ...string) {
	t.Helper()
	if got != status {
		t.Fatalf("%s: status %d, want %d:\n%s", what, got, status, body)
	}
	for _, text := range texts {
		if !strings.Contains(body, text) {
			t.Errorf("%s: no %q", what, text)
		}
	}
}

func letters(t *testing.T, db *dashboardtest.DB, f consumer.DeadLetterFilter) []consumer.DeadLetter {
	t.Helper()
	found, err := db.Operator().DeadLetters(t.Context(), f)
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func actions(t *testing.T, db *dashboardtest.DB) []ops.Action {
	t.Helper()
	found, err := db.Operator().Actions(t.Context(), ops.ActionFilter{})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func numeral(n int64) string { return strconv.FormatInt(n, 10) }
