package storm_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/txonce/txonce/adapters/httpidem/storm"
)

// roundTrip is an http.RoundTripper.
type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// Without jitter all clients come back at the same moment, and with it they do not.
func TestJitter(t *testing.T) {
	peak := func(jitter bool) (peak int) {
		synctest.Test(t, func(t *testing.T) {
			var requests atomic.Int64
			r, err := storm.Run(t.Context(), storm.Config{
				URL: "http://host", Keys: 1, Clients: 20, Tries: 12, Backoff: time.Second, Jitter: jitter,
				Transport: roundTrip(func(*http.Request) (*http.Response, error) {
					w := httptest.NewRecorder()
					if requests.Add(1) <= 40 {
						w.WriteHeader(http.StatusServiceUnavailable)
					}
					return w.Result(), nil
				}),
			})
			if err != nil || len(r.Findings) > 0 || int(requests.Load()) != r.Requests {
				t.Errorf("%d requests, %+v, %v", requests.Load(), r, err)
			}
			peak = r.Peak
		})
		return peak
	}
	if n := peak(false); n != 20 {
		t.Errorf("without jitter %d retries began within 100 ms, want all 20", n)
	}
	if n := peak(true); n > 15 {
		t.Errorf("with jitter %d retries began within 100 ms", n)
	}
}

// Retry-After is obeyed, up to five seconds.
func TestRetryAfter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began, first := time.Now(), true
		r, err := storm.Run(t.Context(), storm.Config{
			URL: "http://host", Keys: 1, Clients: 1, Backoff: time.Second,
			Transport: roundTrip(func(*http.Request) (*http.Response, error) {
				w := httptest.NewRecorder()
				if first {
					first = false
					w.Header().Set("Retry-After", "3600")
					w.WriteHeader(http.StatusTooManyRequests)
				}
				return w.Result(), nil
			}),
		})
		if took := time.Since(began); err != nil || len(r.Findings) > 0 || took != 6*time.Second {
			t.Errorf("%v, %v, %v", took, r.Findings, err)
		}
	})
}

// Each request has the key of its number in the header, the body of its number, and the headers of the Config.
func TestRequests(t *testing.T) {
	var keys []string
	_, err := storm.Run(t.Context(), storm.Config{
		URL: "http://host/orders", Method: "PATCH", Header: "X-Key", Keys: 2, Clients: 1, Body: `{"item": "{n}"}`,
		Headers: http.Header{"Authorization": {"Bearer t"}},
		Transport: roundTrip(func(r *http.Request) (*http.Response, error) {
			body, _ := io.ReadAll(r.Body)
			if want := fmt.Sprintf(`{"item": "%d"}`, len(keys)); string(body) != want || r.Method != "PATCH" ||
				r.Header.Get("Authorization") != "Bearer t" || r.Header.Get("Content-Type") != "application/json" {
				t.Errorf("%s %v %s", r.Method, r.Header, body)
			}
			keys = append(keys, r.Header.Get("X-Key"))
			return httptest.NewRecorder().Result(), nil
		}),
	})
	if err != nil || len(keys) != 2 || keys[0] == keys[1] || keys[0] == "" {
		t.Errorf("%q, %v", keys, err)
	}
}

// A Config that is wrong, and a server that is away, are errors that name the cause.
func TestConfig(t *testing.T) {
	for want, cfg := range map[string]storm.Config{
		"Config.URL":         {URL: "ftp://host"},
		"Config.Method":      {URL: "http://host", Method: "po st"},
		"Config.Keys":        {URL: "http://host", Keys: -1},
		"Config.Clients":     {URL: "http://host", Clients: 501},
		"Config.Tries":       {URL: "http://host", Tries: 21},
		"allow 2000000":      {URL: "http://host", Keys: 1000, Clients: 100, Tries: 20},
		"Config.Cuts":        {URL: "http://host", Cuts: 1},
		"Config.Backoff":     {URL: "http://host", Backoff: -1},
		"none of 1 requests": {URL: "http://127.0.0.1:1", Keys: 1, Clients: 1, Tries: 1},
	} {
		if _, err := storm.Run(t.Context(), cfg); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

func TestEffectsAt(t *testing.T) {
	answer := ""
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer t" {
			w.WriteHeader(http.StatusUnauthorized)
		}
		fmt.Fprint(w, answer)
	}))
	defer server.Close()
	own := http.Header{"Authorization": {"Bearer t"}}
	for text, want := range map[string]int{"3": 3, `[{}, {}]`: 2, "[]": 0, "null": 0} {
		answer = text
		if n, err := storm.EffectsAt(server.URL, own)(t.Context()); n != want || err != nil {
			t.Errorf("%s: %d, %v; want %d", text, n, err, want)
		}
	}
	answer = `{"count": 3}`
	if _, err := storm.EffectsAt(server.URL, own)(t.Context()); err == nil {
		t.Error("an object was counted")
	}
	answer = "3"
	if _, err := storm.EffectsAt(server.URL, nil)(t.Context()); err == nil {
		t.Error("401 was counted")
	}
}

// Scripts depend on the names.
func TestReportJSON(t *testing.T) {
	text, err := json.Marshal(storm.Report{})
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"requests", "statuses", "effects", "latency_seconds", "findings", "notes", "jitter"} {
		if !strings.Contains(string(text), `"`+name+`"`) {
			t.Errorf("no %q in %s", name, text)
		}
	}
}
