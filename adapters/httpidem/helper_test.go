package httpidem_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/txonce/txonce/adapters/httpidem"
	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/dedup/deduptest"
)

type (
	config  = httpidem.Config[*deduptest.Tx]
	handler = httpidem.Handler[*deduptest.Tx]
)

func secret(of string) []byte {
	return bytes.Repeat([]byte(of), httpidem.MinSecret)[:httpidem.MinSecret]
}

// byUser is a Config.Principal that trusts a header, as if a layer outside had authenticated it.
func byUser(r *http.Request) (string, error) { return r.Header.Get("X-User"), nil }

// api is a Guard over a store in memory, and what its handler did.
type api struct {
	t     testing.TB
	store *deduptest.Store
	guard *httpidem.Guard[*deduptest.Tx]
	log   bytes.Buffer
}

// newAPI returns an api with settings for tests, which change may change.
func newAPI(t testing.TB, change ...func(*config)) *api {
	return newAPIOn(t, deduptest.NewStore(), change...)
}

func newAPIOn(t testing.TB, store *deduptest.Store, change ...func(*config)) *api {
	t.Helper()
	a := &api{t: t, store: store}
	cfg := config{
		Name: "api", Store: a.store, Secrets: [][]byte{secret("a")}, Principal: byUser,
		Logger: slog.New(slog.NewTextHandler(&a.log, nil)),
	}
	for _, c := range change {
		c(&cfg)
	}
	var err error
	if a.guard, err = httpidem.New(cfg); err != nil {
		t.Fatal(err)
	}
	return a
}

// effects returns how many times the handlers' work was committed.
func (a *api) effects() int { return a.store.Database().Count("effect") }

func (a *api) wantEffects(want int) {
	a.t.Helper()
	if got := a.effects(); got != want {
		a.t.Errorf("%d effects, want %d", got, want)
	}
	if n := a.store.Database().Open(); n != 0 {
		a.t.Errorf("%d transactions are left open", n)
	}
}

// create is a handler that makes an effect and answers with 201, the body that it got, and a few headers.
func (a *api) create() http.Handler {
	return a.guard.Handle(func(_ context.Context, tx *deduptest.Tx, w http.ResponseWriter, r *http.Request) error {
		if err := tx.Add("effect"); err != nil {
			return err
		}
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return err
		}
		w.Header().Set("Location", fmt.Sprintf("/orders/%d", a.effects()+1))
		w.WriteHeader(http.StatusCreated)
		_, err = fmt.Fprintf(w, "created %s", body)
		return err
	})
}

// status is a handler that makes an effect and answers with this status.
func (a *api) status(status int) http.Handler {
	return a.guard.Handle(func(_ context.Context, tx *deduptest.Tx, w http.ResponseWriter, _ *http.Request) error {
		if err := tx.Add("effect"); err != nil {
			return err
		}
		w.WriteHeader(status)
		return nil
	})
}

// request is a request of a client. The zero value is a POST /orders with the key "k" of the user "ann".
type request struct {
	method, target, key, user, body string
	header                          http.Header
	noKey                           bool
}

func (q request) make(ctx context.Context) *http.Request {
	or := func(s, other string) string {
		if s == "" {
			return other
		}
		return s
	}
	r := httptest.NewRequestWithContext(ctx, or(q.method, http.MethodPost), or(q.target, "/orders"),
		strings.NewReader(q.body))
	if !q.noKey {
		r.Header.Set("Idempotency-Key", or(q.key, "k"))
	}
	r.Header.Set("X-User", or(q.user, "ann"))
	for name, values := range q.header {
		r.Header[name] = values
	}
	return r
}

// send sends q to h.
func (a *api) send(h http.Handler, q request) *httptest.ResponseRecorder {
	a.t.Helper()
	return serve(h, q.make(a.t.Context()))
}

func serve(h http.Handler, r *http.Request) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

// want sends q and checks the status, and whether the response is a replay.
func (a *api) want(h http.Handler, q request, status int, replayed bool) *httptest.ResponseRecorder {
	a.t.Helper()
	w := a.send(h, q)
	if w.Code != status || isReplay(w) != replayed {
		a.t.Errorf("%+v: status %d, replayed %v; want %d, %v\n%s\n%s", q, w.Code, isReplay(w), status, replayed,
			w.Body, &a.log)
	}
	return w
}

// refused sends q and checks that the answer has this reason.
func (a *api) refused(h http.Handler, q request, status int, reason httpidem.Reason) *httptest.ResponseRecorder {
	a.t.Helper()
	w := a.send(h, q)
	wantProblem(a.t, w, status, reason)
	return w
}

func wantProblem(t testing.TB, w *httptest.ResponseRecorder, status int, reason httpidem.Reason) {
	t.Helper()
	if kind := w.Header().Get("Content-Type"); w.Code != status || kind != "application/problem+json" ||
		!strings.Contains(w.Body.String(), "#"+string(reason)+`"`) {
		t.Errorf("status %d, %s, %s; want %d, %s", w.Code, kind, w.Body, status, reason)
	}
}

func isReplay(w *httptest.ResponseRecorder) bool {
	return w.Header().Get("Idempotent-Replayed") == "true"
}

// same checks that two responses are equal but for Idempotent-Replayed and headers that are not stored.
func (a *api) same(first, second *httptest.ResponseRecorder, unstored ...string) {
	a.t.Helper()
	one, two := first.Header().Clone(), second.Header().Clone()
	for _, name := range append(unstored, "Idempotent-Replayed") {
		one.Del(name)
		two.Del(name)
	}
	if diff := cmp.Diff(one, two); diff != "" {
		a.t.Errorf("headers (-first +second):\n%s", diff)
	}
	if first.Code != second.Code || !bytes.Equal(first.Body.Bytes(), second.Body.Bytes()) {
		a.t.Errorf("%d %q and %d %q, want the same", first.Code, first.Body, second.Code, second.Body)
	}
}

var errHandler = errors.New("secret SQL of the handler")

// slow is a handler that makes an effect after d.
func (a *api) slow(d time.Duration) http.Handler {
	return a.guard.Handle(func(ctx context.Context, tx *deduptest.Tx, w http.ResponseWriter, _ *http.Request) error {
		select {
		case <-time.After(d):
		case <-ctx.Done():
			return ctx.Err()
		}
		w.WriteHeader(http.StatusCreated)
		return tx.Add("effect")
	})
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
