package httpidem_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/txonce/txonce/adapters/httpidem"
	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/dedup/deduptest"
)

// finalOnly has all statuses of errors. Only three of them are final, whatever the next request's headers and body are.
func finalOnly() map[int]bool {
	all := map[int]bool{600: false}
	for status := 400; status < 600; status++ {
		all[status] = status == 402 || status == 410 || status == 451
	}
	return all
}

// Which statuses are stored under each policy. A response that is not stored leaves the key free.
func TestRecord(t *testing.T) {
	type stored map[int]bool
	common := stored{
		200: true, 201: true, 204: true, 299: true, 301: true, 302: true, 303: true, 307: true, 308: true,
		408: false, 409: false, 425: false, 429: false, 503: false,
	}
	for _, tt := range []struct {
		name   string
		record func(int) bool
		want   stored
	}{
		{"by default", nil, finalOnly()},
		{"as Stripe v1", httpidem.RecordStripeV1, stored{400: false, 402: true, 404: false, 412: false, 422: false, 428: false, 500: true, 501: true, 502: true, 504: true}},
		{"as Stripe v2", httpidem.RecordStripeV2, stored{400: false, 402: false, 404: false, 410: false, 500: false}},
		{"everything", func(int) bool { return true }, stored{400: true, 404: true, 500: true}},
		{"nothing", func(int) bool { return false }, stored{400: false, 402: false}},
	} {
		for _, statuses := range []stored{common, tt.want} {
			for status, want := range statuses {
				if _, special := tt.want[status]; special {
					want = tt.want[status]
				}
				t.Run(fmt.Sprintf("cases 20 to 22, E1: %d %s", status, tt.name), func(t *testing.T) {
					a := newAPI(t, func(c *config) { c.Record = tt.record })
					effects := 0
					if want && status < 400 {
						effects = 1
					}
					a.want(a.status(status), request{}, status, false)
					a.wantEffects(effects)
					if want {
						a.want(a.create(), request{}, status, true)
					} else {
						a.want(a.create(), request{}, http.StatusCreated, false)
						effects++
					}
					a.wantEffects(effects)
				})
			}
		}
	}
	t.Run("case 21: a mended body runs under the same key", func(t *testing.T) {
		a := newAPI(t)
		for _, status := range []int{400, 422} {
			a.want(a.status(status), request{body: "wrong"}, status, false)
		}
		a.want(a.create(), request{body: "mended"}, http.StatusCreated, false)
		a.wantEffects(1)
	})
	t.Run("case 20: a recorded failure is replayed byte for byte, and only to its body", func(t *testing.T) {
		a := newAPI(t)
		h := a.writes(func(w http.ResponseWriter) {
			w.Header().Set("Content-Language", "en")
			w.WriteHeader(http.StatusPaymentRequired)
			io.WriteString(w, "card declined")
		})
		first := a.want(h, request{}, http.StatusPaymentRequired, false)
		a.same(first, a.want(h, request{}, http.StatusPaymentRequired, true))
		a.refused(h, request{body: "other"}, http.StatusUnprocessableEntity, httpidem.Mismatch)
		a.wantEffects(0)
	})
	t.Run("E5: a mux inside: 404, 405 and redirects are not recorded", func(t *testing.T) {
		a := newAPI(t)
		mux := http.NewServeMux()
		mux.HandleFunc("GET /orders", func(http.ResponseWriter, *http.Request) {})
		mux.HandleFunc("/tree/", func(http.ResponseWriter, *http.Request) {})
		h := a.guard.Wrap(mux)
		for target, status := range map[string]int{"/nowhere": 404, "/orders": 405, "/tree": 307} {
			a.want(h, request{target: target, key: target}, status, false)
			a.want(a.create(), request{target: target, key: target}, http.StatusCreated, false) // as after a deploy
		}
	})
	t.Run("a handler inside Wrap that redirects after its work has committed it", func(t *testing.T) {
		a := newAPI(t, func(c *config) { c.Optional = true })
		h := a.guard.Wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			tx, err := a.guard.Tx(r.Context())
			if err != nil || tx.Add("effect") != nil {
				t.Error(err)
			}
			http.Redirect(w, r, "/orders/1", http.StatusTemporaryRedirect)
		}))
		a.want(h, request{}, http.StatusTemporaryRedirect, false)
		a.want(h, request{}, http.StatusTemporaryRedirect, true)
		a.wantEffects(1)
		a.want(h, request{noKey: true}, http.StatusTemporaryRedirect, false)
		a.want(a.status(http.StatusPermanentRedirect), request{noKey: true}, http.StatusPermanentRedirect, false)
		a.wantEffects(3)
	})
}

// What the client sees when the handler or the database fails. Texts of errors go to the log only.
func TestFailures(t *testing.T) {
	fail := func(err error) handler {
		return func(_ context.Context, tx *deduptest.Tx, w http.ResponseWriter, _ *http.Request) error {
			if err := tx.Add("effect"); err != nil {
				return err
			}
			w.Header().Set("Location", "/orders/1")
			return err
		}
	}
	for _, tt := range []struct {
		name   string
		handle handler
		status int
		reason httpidem.Reason
	}{
		{"case 20: an error", fail(errHandler), 500, httpidem.Failed},
		{"case 20: an error after a 201", func(_ context.Context, tx *deduptest.Tx, w http.ResponseWriter, _ *http.Request) error {
			w.WriteHeader(http.StatusCreated)
			return errors.Join(tx.Add("effect"), errHandler)
		}, 500, httpidem.Failed},
		{
			"E14: an error that is Retryable", fail(fmt.Errorf("insert: %w", deduptest.ErrDeadlock)), 503,
			httpidem.Unavailable,
		},
		{"E14: a 201 over an aborted transaction", func(_ context.Context, tx *deduptest.Tx, w http.ResponseWriter, _ *http.Request) error {
			_ = tx.Add("") // violates a constraint
			w.WriteHeader(http.StatusCreated)
			return nil
		}, 500, httpidem.Failed},
		{"E14: a 500 of the handler over a deadlock", func(_ context.Context, tx *deduptest.Tx, w http.ResponseWriter, _ *http.Request) error {
			w.WriteHeader(http.StatusInternalServerError)
			return tx.Fail(deduptest.ErrDeadlock)
		}, 503, httpidem.Unavailable},
		{"LockKeys that waits too long", fail(fmt.Errorf("lock account 1: %w", dedup.ErrInFlight)), 503, httpidem.Busy},
		{"a handler that ends its transaction", func(ctx context.Context, tx *deduptest.Tx, w http.ResponseWriter, _ *http.Request) error {
			_ = tx.Commit(ctx)
			w.WriteHeader(http.StatusCreated)
			return nil
		}, 500, httpidem.Failed},
	} {
		t.Run(tt.name, func(t *testing.T) {
			a := newAPI(t, func(c *config) { c.Record = httpidem.RecordStripeV2 })
			w := a.refused(a.guard.Handle(tt.handle), request{}, tt.status, tt.reason)
			if retry := w.Header().Get("Retry-After"); (retry != "") != (tt.status == 503) {
				t.Errorf("Retry-After: %q", retry)
			}
			if strings.Contains(w.Body.String(), "SQL") || strings.Contains(w.Body.String(), "deduptest") ||
				w.Header().Get("Location") != "" {
				t.Errorf("the client sees %v %s", w.Header(), w.Body)
			}
			if !strings.Contains(a.log.String(), "error=") {
				t.Errorf("the log says nothing: %s", &a.log)
			}
			a.wantEffects(0)
			a.want(a.create(), request{}, http.StatusCreated, false)
		})
	}
	t.Run("case 20: an error with a written failure is answered with that, and logged", func(t *testing.T) {
		a := newAPI(t)
		h := a.guard.Handle(func(_ context.Context, tx *deduptest.Tx, w http.ResponseWriter, _ *http.Request) error {
			w.WriteHeader(http.StatusPaymentRequired)
			return errors.Join(tx.Add("effect"), errHandler)
		})
		a.want(h, request{}, http.StatusPaymentRequired, false)
		a.want(h, request{}, http.StatusPaymentRequired, true)
		a.wantEffects(0)
		if n := strings.Count(a.log.String(), errHandler.Error()); n != 1 {
			t.Errorf("%d lines in the log", n)
		}
	})
	t.Run("an error is stored where Record wants 500", func(t *testing.T) {
		a := newAPI(t, func(c *config) { c.Record = httpidem.RecordStripeV1 })
		first := a.want(a.guard.Handle(fail(errHandler)), request{}, 500, false)
		a.same(first, a.want(a.create(), request{}, 500, true))
		a.refused(a.guard.Handle(fail(deduptest.ErrDown)), request{key: "2"}, 503, httpidem.Unavailable)
		a.want(a.create(), request{key: "2"}, http.StatusCreated, false) // the database's failure is not final
		a.refused(a.guard.Handle(fail(dedup.ErrInFlight)), request{key: "3"}, 503, httpidem.Busy)
		a.want(a.create(), request{key: "3"}, http.StatusCreated, false) // nor is another request's lock
	})
	t.Run("a written 5xx is logged, also without an error", func(t *testing.T) {
		for _, status := range []int{500, 502, 503} {
			a := newAPI(t, func(c *config) { c.Record = httpidem.RecordStripeV1 })
			for range 2 {
				a.send(a.status(status), request{})
			}
			lines := 1 // none for the replay
			if status == 503 {
				lines = 2 // never stored
			}
			if n := strings.Count(a.log.String(), fmt.Sprintf("status=%d", status)); n != lines {
				t.Errorf("%d: %d lines: %s", status, n, &a.log)
			}
		}
	})
	for name, value := range map[string]any{"a panic": "boom", "http.ErrAbortHandler": http.ErrAbortHandler} {
		t.Run("case 19: "+name, func(t *testing.T) {
			a := newAPI(t)
			for _, h := range []http.Handler{
				a.guard.Handle(func(_ context.Context, tx *deduptest.Tx, w http.ResponseWriter, _ *http.Request) error {
					_ = tx.Add("effect")
					w.WriteHeader(http.StatusCreated)
					panic(value)
				}),
				a.guard.Wrap(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(value) })),
			} {
				func() {
					defer func() {
						if got := recover(); got != value {
							t.Errorf("recovered %v", got)
						}
					}()
					a.send(h, request{})
				}()
			}
			a.wantEffects(0)
			a.want(a.create(), request{}, http.StatusCreated, false) // at once: the key is free in this process, too
		})
	}
}
