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

// Which statuses are stored under each policy. A response that is not stored leaves the key free.
func TestRecord(t *testing.T) {
	type stored map[int]bool
	common := stored{200: true, 201: true, 204: true, 299: true, 302: true, 303: true, 408: false, 409: false, 425: false, 429: false, 503: false}
	for _, tt := range []struct {
		name   string
		record func(int) bool
		want   stored
	}{
		{"by default", nil, stored{
			400: false, 401: false, 402: true, 403: false, 404: false, 405: false, 406: false, 410: true, 411: false, 412: true, 413: false, 415: false,
			418: true, 422: false, 301: false, 307: false, 308: false, 500: false, 502: false, 600: false,
		}},
		{"as Stripe v1", httpidem.RecordStripeV1, stored{400: false, 402: true, 404: false, 422: false, 307: false, 500: true, 501: true, 502: true, 504: true}},
		{"as Stripe v2", httpidem.RecordStripeV2, stored{400: false, 402: false, 404: false, 410: false, 307: false, 500: false}},
		{"everything", func(int) bool { return true }, stored{400: true, 404: true, 500: true, 307: true}},
		{"nothing", func(int) bool { return false }, stored{302: false, 303: false, 400: false, 402: false}},
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
		{"E14: an error that is Retryable", fail(fmt.Errorf("insert: %w", deduptest.ErrDeadlock)), 503, httpidem.Unavailable},
		{"E14: a 201 over an aborted transaction", func(_ context.Context, tx *deduptest.Tx, w http.ResponseWriter, _ *http.Request) error {
			_ = tx.Add("") // violates a constraint
			w.WriteHeader(http.StatusCreated)
			return nil
		}, 500, httpidem.Failed},
		{"E14: a 500 of the handler over a deadlock", func(_ context.Context, tx *deduptest.Tx, w http.ResponseWriter, _ *http.Request) error {
			w.WriteHeader(http.StatusInternalServerError)
			return tx.Fail(deduptest.ErrDeadlock)
		}, 503, httpidem.Unavailable},
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
			if strings.Contains(w.Body.String(), "SQL") || strings.Contains(w.Body.String(), "deduptest") || w.Header().Get("Location") != "" {
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

// COMMIT fails, or gets no answer.
func TestCommitFails(t *testing.T) {
	for _, tt := range []struct {
		name              string
		commit            func(n int, ctx context.Context, tx *deduptest.Tx) error // n counts from 1
		handle, wrap      int                                                      // status
		replayed          bool                                                     // by Handle
		runs, afterHandle int                                                      // runs of Handle's handler; status of a retry after it
	}{
		{"case 23: a serialization failure", func(n int, ctx context.Context, tx *deduptest.Tx) error {
			if n == 1 {
				return errors.Join(tx.Rollback(), deduptest.ErrDeadlock)
			}
			return tx.Commit(ctx)
		}, 200, 503, false, 2, 200},
		{"case 23: serialization failures without end", func(_ int, _ context.Context, tx *deduptest.Tx) error {
			return errors.Join(tx.Rollback(), deduptest.ErrDeadlock)
		}, 503, 503, false, 3, 503},
		{"case 24: the answer is lost, and the claim shows that it was committed", func(n int, ctx context.Context, tx *deduptest.Tx) error {
			if err := tx.Commit(ctx); n > 1 || err != nil {
				return err
			}
			return deduptest.ErrDown
		}, 200, 503, true, 1, 200},
		{"case 24: the answer is lost, and the database stays away", func(_ int, ctx context.Context, tx *deduptest.Tx) error {
			return errors.Join(tx.Commit(ctx), deduptest.ErrDown)
		}, 503, 503, false, 1, 503},
		{"a constraint that COMMIT checks", func(n int, ctx context.Context, tx *deduptest.Tx) error {
			if n == 1 {
				return errors.Join(tx.Rollback(), errors.New("constraint"))
			}
			return tx.Commit(ctx)
		}, 500, 500, false, 1, 200},
	} {
		t.Run(tt.name, func(t *testing.T) {
			a := newAPI(t)
			commits, runs := 0, 0
			a.store.OnCommit = func(ctx context.Context, tx *deduptest.Tx) error {
				commits++
				return tt.commit(commits, ctx, tx)
			}
			h := a.guard.Handle(func(_ context.Context, tx *deduptest.Tx, _ http.ResponseWriter, _ *http.Request) error {
				runs++
				return tx.Add("effect")
			})
			a.want(h, request{key: "h"}, tt.handle, tt.replayed)
			if runs != tt.runs {
				t.Errorf("Handle: %d runs, want %d", runs, tt.runs)
			}
			if w := a.send(h, request{key: "h"}); w.Code != tt.afterHandle {
				t.Errorf("Handle: a retry gets %d, want %d", w.Code, tt.afterHandle)
			}
			commits, runs = 0, 0
			a.want(a.guard.Wrap(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { runs++ })), request{key: "w"}, tt.wrap, false)
			if runs != 1 {
				t.Errorf("E15: Wrap: %d runs, want 1", runs)
			}
			if n := a.effects(); n > 1 {
				t.Errorf("%d effects", n)
			}
		})
	}
	t.Run("case 20: a request in another process wins before a failure is recorded", func(t *testing.T) {
		spy := &spyStore{Store: deduptest.NewStore()}
		other := newAPIOn(t, spy.Store.Database().NewStore())
		spy.before = func(n int, _ []dedup.Record) {
			if n == 2 { // the handler's work is rolled back, and the response is not recorded yet
				other.want(other.create(), request{}, http.StatusCreated, false)
			}
		}
		a := newAPIOn(t, spy.Store, func(c *config) { c.Store = spy })
		a.want(a.status(http.StatusPaymentRequired), request{}, http.StatusCreated, true)
		a.want(a.status(http.StatusPaymentRequired), request{}, http.StatusCreated, true)
		a.wantEffects(1)
	})
	t.Run("case 20: a failure that cannot be recorded is answered with 503", func(t *testing.T) {
		a := newAPI(t)
		a.store.OnCommit = func(_ context.Context, tx *deduptest.Tx) error { return errors.Join(tx.Rollback(), deduptest.ErrDown) }
		a.refused(a.status(http.StatusPaymentRequired), request{}, 503, httpidem.Unavailable)
	})
	t.Run("case 25: the database is down: nothing runs", func(t *testing.T) {
		a := newAPI(t)
		a.store.Database().Stop()
		for _, h := range []http.Handler{
			a.guard.Handle(func(context.Context, *deduptest.Tx, http.ResponseWriter, *http.Request) error {
				t.Error("it ran")
				return nil
			}),
			a.guard.Wrap(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("it ran") })),
		} {
			a.refused(h, request{}, http.StatusServiceUnavailable, httpidem.Unavailable)
		}
		a.store.Database().Start()
		a.want(a.create(), request{}, http.StatusCreated, false)
	})
	t.Run("E4: a handler without its claim commits nothing", func(t *testing.T) {
		var key dedup.Key
		spy := &spyStore{Store: deduptest.NewStore(), before: func(_ int, recs []dedup.Record) { key = recs[0].Key }}
		a := newAPIOn(t, spy.Store, func(c *config) { c.Store = spy })
		h := a.guard.Handle(func(ctx context.Context, tx *deduptest.Tx, _ http.ResponseWriter, _ *http.Request) error {
			return errors.Join(tx.Add("effect"), spy.Forget(ctx, tx, key)) // the row is gone, as after a ROLLBACK that nobody noticed
		})
		a.refused(h, request{}, http.StatusInternalServerError, httpidem.Failed)
		a.wantEffects(0)
	})
}

// E15: each attempt of Handle gets the request as it arrived, whatever the attempts before have done with theirs.
func TestFreshRequests(t *testing.T) {
	a := newAPI(t)
	runs := 0
	mux := http.NewServeMux()
	mux.Handle("POST /orders/{id}", a.guard.Handle(func(ctx context.Context, tx *deduptest.Tx, _ http.ResponseWriter, r *http.Request) error {
		runs++
		body, err := io.ReadAll(r.Body)
		if err != nil || string(body) != "a=1" || r.URL.Path != "/orders/7" || r.Header.Get("X-Mine") != "" || r.PathValue("id") != "7" || r.Form != nil || r.Context() != ctx {
			t.Errorf("run %d: %q, %v: %+v", runs, body, err, r)
		}
		r.URL.Path = "/changed"
		r.Header.Set("X-Mine", "changed")
		r.SetPathValue("id", "8")
		r.Form = map[string][]string{"a": {"changed"}}
		if runs < 3 {
			return deduptest.ErrDeadlock
		}
		return tx.Add("effect")
	}))
	a.want(mux, request{target: "/orders/7", body: "a=1"}, http.StatusOK, false)
	a.wantEffects(1)
	if runs != 3 {
		t.Errorf("%d runs", runs)
	}
}

// spyStore calls before ahead of the nth transaction.
type spyStore struct {
	*deduptest.Store
	before func(n int, recs []dedup.Record)
	n      int
}

func (s *spyStore) InTx(ctx context.Context, recs []dedup.Record, fn func(*deduptest.Tx, []dedup.Claim) error) error {
	s.n++
	s.before(s.n, recs)
	return s.Store.InTx(ctx, recs, fn)
}
