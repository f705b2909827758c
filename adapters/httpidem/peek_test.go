package httpidem_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/txonce/txonce/adapters/httpidem"
	"github.com/txonce/txonce/dedup/deduptest"
)

// A rate limiter that peeks lets repeats pass when nothing is left, and counts each new request once.
func TestPeek(t *testing.T) {
	a := newAPI(t, func(c *config) { c.Secrets = [][]byte{secret("b"), secret("a")} })
	left := 1
	create := a.create()
	limited := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if repeat, err := a.guard.Peek(r); err == nil && repeat {
			create.ServeHTTP(w, r)
			return
		}
		if left == 0 {
			http.Error(w, "too many requests", http.StatusTooManyRequests)
			return
		}
		left--
		create.ServeHTTP(w, r)
	})
	a.want(limited, request{body: "x"}, http.StatusCreated, false)
	a.want(limited, request{body: "x"}, http.StatusCreated, true)
	a.want(limited, request{body: "other"}, http.StatusUnprocessableEntity, false) // no handler runs, so nothing is counted
	a.want(limited, request{key: "new"}, http.StatusTooManyRequests, false)
	a.want(limited, request{user: "bob", body: "x"}, http.StatusTooManyRequests, false)
	a.want(limited, request{key: "a b"}, http.StatusTooManyRequests, false)
	a.wantEffects(1)

	// A process that knows only the old secret has answered, and this one peeks under both.
	old := newAPIOn(t, a.store, func(c *config) { c.Secrets = [][]byte{secret("a")} })
	old.want(old.create(), request{key: "old"}, http.StatusCreated, false)
	a.want(limited, request{key: "old"}, http.StatusCreated, true)
}

// A key whose handler is running, or whose work was rolled back, has no stored response.
func TestPeekAtWhatRunsAgain(t *testing.T) {
	a := newAPI(t)
	peek := func() bool {
		t.Helper()
		repeat, err := a.guard.Peek(request{}.make(t.Context()))
		if err != nil {
			t.Fatal(err)
		}
		return repeat
	}
	a.want(a.status(400), request{}, 400, false)
	if peek() {
		t.Error("a request that was rolled back is a repeat")
	}
	a.want(a.status(402), request{}, 402, false)
	if !peek() {
		t.Error("a request whose response was recorded is no repeat")
	}
	get := request{method: http.MethodGet}.make(t.Context())
	if repeat, err := a.guard.Peek(get); repeat || err != nil {
		t.Errorf("GET: %t, %v", repeat, err)
	}
	a.store.Database().Stop()
	if repeat, err := a.guard.Peek(request{}.make(t.Context())); repeat || err == nil {
		t.Errorf("without a database: %t, %v", repeat, err)
	}
}

// Peek reads nothing of the body: the Guard needs all of it.
func TestPeekLeavesTheBody(t *testing.T) {
	a := newAPI(t)
	create := a.create()
	w := serve(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, err := a.guard.Peek(r); err != nil {
			t.Error(err)
		}
		create.ServeHTTP(w, r)
	}), request{body: "all of it"}.make(t.Context()))
	if w.Body.String() != "created all of it" {
		t.Errorf("%q", w.Body)
	}
}

// The key comes from the header that the API has.
func TestHeader(t *testing.T) {
	a := newAPI(t, func(c *config) { c.Header = "x-idempotency-key" })
	own := http.Header{"X-Idempotency-Key": {"mine"}}
	a.want(a.create(), request{noKey: true, header: own}, http.StatusCreated, false)
	a.want(a.create(), request{noKey: true, header: own}, http.StatusCreated, true)
	w := a.refused(a.create(), request{key: "mine"}, http.StatusBadRequest, httpidem.MissingKey)
	if !strings.Contains(w.Body.String(), "X-Idempotency-Key") {
		t.Errorf("the refusal does not name the header: %s", w.Body)
	}
	a.wantEffects(1)
	for _, wrong := range []string{"a b", "Authorization", "cookie", "Connection", "Schlüssel"} {
		if _, err := httpidem.New(config{
			Name: "api", Store: a.store, Secrets: [][]byte{secret("a")}, Principal: byUser, Header: wrong,
		}); err == nil || !strings.Contains(err.Error(), "Config.Header") {
			t.Errorf("%q: %v", wrong, err)
		}
	}
}

// Config.Problem writes the body of refusals, and only that. When it panics, the client gets Problem Details.
func TestProblem(t *testing.T) {
	a := newAPI(t, func(c *config) {
		c.Problem = func(r *http.Request, p httpidem.Problem) (string, []byte) {
			if p.Reason == httpidem.MalformedKey {
				panic("a bug")
			}
			return "application/vnd.shop+json", []byte(`{"code": "` + string(p.Reason) + `", "path": "` + r.URL.Path + `"}`)
		}
		c.Record = httpidem.RecordStripeV1
	})
	a.want(a.create(), request{}, http.StatusCreated, false)
	w := a.want(a.create(), request{body: "other"}, http.StatusUnprocessableEntity, false)
	if w.Body.String() != `{"code": "Mismatch", "path": "/orders"}` ||
		w.Header().Get("Content-Type") != "application/vnd.shop+json" || w.Header().Get("Cache-Control") != "no-store" {
		t.Errorf("%v %s", w.Header(), w.Body)
	}
	a.refused(a.create(), request{key: "a b"}, http.StatusBadRequest, httpidem.MalformedKey)

	// a failure that is stored is stored with this body
	fails := a.guard.Handle(func(_ context.Context, _ *deduptest.Tx, _ http.ResponseWriter, _ *http.Request) error {
		return errHandler
	})
	var bodies []string
	for i, w := range []*httptest.ResponseRecorder{a.send(fails, request{key: "f"}), a.send(fails, request{key: "f"})} {
		if bodies = append(bodies, w.Body.String()); w.Code != 500 || isReplay(w) != (i == 1) {
			t.Errorf("%d, replayed %t", w.Code, isReplay(w))
		}
	}
	if bodies[0] != bodies[1] || !strings.Contains(bodies[0], `"Failed"`) {
		t.Errorf("%q", bodies)
	}
}
