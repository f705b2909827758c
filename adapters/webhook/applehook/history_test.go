package applehook_test

import (
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/txonce/txonce/adapters/webhook/applehook"
	"github.com/txonce/txonce/adapters/webhook/applehook/appletest"
	"github.com/txonce/txonce/dedup/deduptest"
)

type backfillConfig = applehook.BackfillConfig[*deduptest.Tx]

// since limits the first pass to two steps.
func since(cfg *backfillConfig) { cfg.Since = time.Now().Add(-36 * time.Hour) }

// Failures of Apple's API that pass: nothing is lost, and the pass succeeds after the right wait.
func TestBackfillFailures(t *testing.T) {
	for _, tt := range []struct {
		name        string
		fail        func(w http.ResponseWriter, request int) bool
		atLeast     time.Duration // that the pass takes
		atMost      time.Duration
		moreLogging string
	}{
		{"none", func(http.ResponseWriter, int) bool { return false }, 0, 0, ""},
		{"429 with a time in milliseconds, as Apple writes it", func(w http.ResponseWriter, request int) bool {
			if request != 2 {
				return false
			}
			w.Header().Set("Retry-After", strconv.FormatInt(time.Now().Add(17*time.Minute).UnixMilli(), 10))
			appletest.Refuse(w, 429, 4290000, "Rate limit exceeded.")
			return true
		}, 17 * time.Minute, 18 * time.Minute, "Rate limit exceeded"},
		{"429 with seconds", func(w http.ResponseWriter, request int) bool {
			if request != 2 {
				return false
			}
			w.Header().Set("Retry-After", "600")
			w.WriteHeader(429)
			return true
		}, 10 * time.Minute, 11 * time.Minute, "429"},
		{"429 with a date", func(w http.ResponseWriter, request int) bool {
			if request != 2 {
				return false
			}
			w.Header().Set("Retry-After", time.Now().Add(10*time.Minute).UTC().Format(http.TimeFormat))
			w.WriteHeader(429)
			return true
		}, 10*time.Minute - time.Second, 11 * time.Minute, "429"},
		{"429 for a year: asked again after 2 hours", func(w http.ResponseWriter, request int) bool {
			if request != 2 {
				return false
			}
			w.Header().Set("Retry-After", "9223372036854775807")
			w.WriteHeader(429)
			return true
		}, 2 * time.Hour, 2*time.Hour + time.Minute, "429"},
		{"429 with a time in the past", func(w http.ResponseWriter, request int) bool {
			if request != 2 {
				return false
			}
			w.Header().Set("Retry-After", "-5")
			w.WriteHeader(429)
			return true
		}, time.Second / 2, time.Second, "429"},
		{"an outage of 500s", func(w http.ResponseWriter, request int) bool {
			if request < 2 || request > 21 {
				return false
			}
			w.WriteHeader(500)
			return true
		}, 20 * time.Minute, 100 * time.Minute, "500"},
		{"503 with Retry-After", func(w http.ResponseWriter, request int) bool {
			if request != 1 {
				return false
			}
			w.Header().Set("Retry-After", "60")
			w.WriteHeader(503)
			return true
		}, time.Minute, 2 * time.Minute, "503"},
		{"a broken response", func(w http.ResponseWriter, request int) bool {
			if request == 2 {
				_, _ = io.WriteString(w, `{"notificationHistory": [{"signedPayl`)
			}
			return request == 2
		}, time.Second / 2, time.Second, "read the page"},
		{"null", func(w http.ResponseWriter, request int) bool {
			if request == 2 {
				_, _ = io.WriteString(w, `null`)
			}
			return request == 2
		}, time.Second / 2, time.Second, "read the page"},
		{"more pages, but no token", func(w http.ResponseWriter, request int) bool {
			if request == 2 {
				_, _ = io.WriteString(w, `{"hasMore": true}`)
			}
			return request == 2
		}, time.Second / 2, time.Second, "no paginationToken"},
		{"an app that is not found, but may be found later", func(w http.ResponseWriter, request int) bool {
			if request == 1 {
				appletest.Refuse(w, 404, 4040004, "App not found. Please try again.")
			}
			return request == 1
		}, time.Second / 2, time.Second, "try again"},
		{"a pagination token that expires: the step begins again", func(w http.ResponseWriter, request int) bool {
			if request == 2 {
				appletest.Refuse(w, 400, 4000017, "Invalid request. The pagination token is expired.")
			}
			return request == 2
		}, 0, 0, ""},
	} {
		inBubble(t, tt.name, func(w *world) {
			var ids []string
			for range 50 { // on three pages
				at := time.Now().Add(-time.Hour)
				signedPayload, id := w.signed(at, "DID_RENEW")
				w.api.Missed(at, signedPayload)
				ids = append(ids, id)
			}
			w.api.Fail = func(rw http.ResponseWriter, _ *http.Request, request int) bool {
				return tt.fail(rw, request-1) // the first step is empty
			}
			began := time.Now()
			passed := w.pass(w.backfill(since))
			if took := time.Since(began); took < tt.atLeast || took > tt.atMost {
				w.Errorf("it took %v, want %v to %v", took, tt.atLeast, tt.atMost)
			}
			w.once(ids)
			if passed.New != len(ids) || passed.Parked != 0 {
				w.Errorf("%+v", passed)
			}
			if !strings.Contains(w.logs.String(), tt.moreLogging) {
				w.Errorf("the log does not have %q: %s", tt.moreLogging, w.logs)
			}
			if strings.Contains(w.logs.String(), "eyJ") {
				w.Errorf("the log has a token or a payload: %s", w.logs)
			}
		})
	}
	inBubble(t, "the network fails for 10 minutes", func(w *world) {
		ids := w.missed(30)
		began := time.Now()
		w.pass(w.backfill(func(cfg *backfillConfig) {
			next := cfg.HTTPClient.Transport
			cfg.HTTPClient = &http.Client{Transport: transport(func(r *http.Request) (*http.Response, error) {
				if time.Since(began) < 10*time.Minute {
					return nil, errors.New("no route to host")
				}
				return next.RoundTrip(r)
			})}
		}))
		w.once(ids)
		if took := time.Since(began); took > 16*time.Minute {
			w.Errorf("it took %v", took)
		}
	})
	inBubble(t, "the network fails for 3 days, during which the first steps leave Apple's history", func(w *world) {
		ids := w.missed(30)
		began := time.Now()
		w.pass(w.backfill(func(cfg *backfillConfig) {
			next := cfg.HTTPClient.Transport
			cfg.HTTPClient = &http.Client{Transport: transport(func(r *http.Request) (*http.Response, error) {
				if time.Since(began) < 3*day {
					return nil, errors.New("no route to host")
				}
				return next.RoundTrip(r)
			})}
		}))
		w.once(ids)
		if !strings.Contains(w.logs.String(), "some may be lost") {
			w.Errorf("log: %s", w.logs)
		}
	})
	inBubble(t, "a request that hangs is given up after 30 seconds", func(w *world) {
		ids := w.missed(1)
		requests := 0
		w.pass(w.backfill(since, func(cfg *backfillConfig) {
			next := cfg.HTTPClient.Transport
			cfg.HTTPClient = &http.Client{Transport: transport(func(r *http.Request) (*http.Response, error) {
				if requests++; requests == 1 {
					<-r.Context().Done()
					return nil, r.Context().Err()
				}
				return next.RoundTrip(r)
			})}
		}))
		w.once(ids)
	})
}

type transport func(*http.Request) (*http.Response, error)

func (f transport) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
