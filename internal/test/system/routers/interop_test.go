package routers_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-chi/chi/v5/middleware"

	"github.com/txonce/txonce/adapters/httpidem"
	"github.com/txonce/txonce/dedup/deduptest"
)

type guard = httpidem.Guard[*deduptest.Tx]

// shop is what the handlers of all routers do.
type shop struct {
	store *deduptest.Store
	guard *guard

	mu     sync.Mutex
	broken bool          // charge panics for the payment "panic"
	slow   chan struct{} // charge waits until it is closed for the payment "slow"
}

// newShop makes a shop for a test, or for an example.
func newShop() *shop {
	s := &shop{store: deduptest.NewStore(), broken: true, slow: make(chan struct{})}
	var err error
	s.guard, err = httpidem.New(httpidem.Config[*deduptest.Tx]{
		Name: "shop", Store: s.store, Secrets: [][]byte{bytes.Repeat([]byte("secret"), 6)},
		Principal: httpidem.Anonymous,
		Logger:    slog.New(slog.DiscardHandler),
	})
	if err != nil {
		panic(err)
	}
	return s
}

// charge adds an effect and says what to answer.
func (s *shop) charge(ctx context.Context, tx *deduptest.Tx, id string,
	body io.Reader,
) (status int, text string, err error) {
	content, err := io.ReadAll(body)
	if err != nil {
		return 0, "", err
	}
	if err := tx.Add("charge"); err != nil {
		return 0, "", err
	}
	s.mu.Lock()
	broken := s.broken
	s.mu.Unlock()
	switch {
	case id == "panic" && broken:
		panic("boom")
	case id == "slow":
		<-s.slow
	case id == "declined":
		return http.StatusPaymentRequired, "declined", ctx.Err()
	}
	return http.StatusCreated, fmt.Sprintf("payment %s: %s", id, content), ctx.Err()
}

func (s *shop) repair() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.broken = false
}

func (s *shop) wantCharges(t *testing.T, want int) {
	t.Helper()
	if n := s.store.Database().Count("charge"); n != want {
		t.Errorf("%d charges, want %d", n, want)
	}
}

func answer(w http.ResponseWriter, status int, text string) error {
	w.Header().Set("Content-Type", "text/plain")
	w.WriteHeader(status)
	_, err := io.WriteString(w, text)
	return err
}

// routers have the routes POST /shop-a/payments/ID and POST /shop-b/payments/ID in mounted parts, and a recoverer that
// answers with 500.
var routers = map[string]func(*shop) http.Handler{
	"chi, Handle":           chiHandle,
	"chi, Wrap":             chiWrap,
	"gin, Handle":           ginHandle,
	"gin, Wrap":             ginWrap,
	"echo, Handle":          echoHandle,
	"echo, its own Context": echoGuarded,
	"echo, Wrap":            echoWrap,
}

func post(h http.Handler, path, key, accept string) *http.Response {
	r := httptest.NewRequest(http.MethodPost, path, strings.NewReader("body"))
	r.Header.Set("Idempotency-Key", key)
	if accept != "" {
		r.Header.Set("Accept-Encoding", accept)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w.Result()
}

type want struct {
	status   int
	body     string
	replayed bool
}

func (s *shop) check(t *testing.T, res *http.Response, want want) {
	t.Helper()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	replayed := res.Header.Get("Idempotent-Replayed") == "true"
	if res.StatusCode != want.status || replayed != want.replayed || want.body != "" && string(body) != want.body {
		t.Errorf("got %d %q, replayed: %v; want %+v", res.StatusCode, body, replayed, want)
	}
}

func TestRouters(t *testing.T) {
	for name, build := range routers {
		t.Run(name, func(t *testing.T) {
			t.Run("a repeat gets the response, with the path's parameter", func(t *testing.T) {
				s := newShop()
				h := build(s)
				s.check(t, post(h, "/shop-a/payments/7", "k", ""), want{201, "payment 7: body", false})
				s.check(t, post(h, "/shop-a/payments/7", "k", ""), want{201, "payment 7: body", true})
				s.wantCharges(t, 1)
			})
			t.Run("E5: mounted parts and parameters have keys of their own", func(t *testing.T) {
				s := newShop()
				h := build(s)
				for _, path := range []string{"/shop-a/payments/7", "/shop-b/payments/7", "/shop-b/payments/8"} {
					s.check(t, post(h, path, "k", ""), want{201, "payment " + path[len(path)-1:] + ": body", false})
				}
				s.wantCharges(t, 3)
			})
			t.Run("E5: 404 of the router is not replayed", func(t *testing.T) {
				s := newShop()
				h := build(s)
				for range 2 {
					s.check(t, post(h, "/shop-a/unknown", "k", ""), want{404, "", false})
				}
			})
			t.Run("case 19: a panic reaches the router's recoverer, and a repeat runs", func(t *testing.T) {
				s := newShop()
				h := build(s)
				s.check(t, post(h, "/shop-a/payments/panic", "k", ""), want{500, "", false})
				s.wantCharges(t, 0)
				s.repair()
				s.check(t, post(h, "/shop-a/payments/panic", "k", ""), want{201, "payment panic: body", false})
				s.wantCharges(t, 1)
			})
			t.Run("case 20: a status of 400 or more rolls back", func(t *testing.T) {
				s := newShop()
				h := build(s)
				s.check(t, post(h, "/shop-a/payments/declined", "k", ""), want{402, "declined", false})
				s.check(t, post(h, "/shop-a/payments/declined", "k", ""), want{402, "declined", true})
				s.wantCharges(t, 0)
			})
			t.Run("case 31: compression outside", func(t *testing.T) {
				s := newShop()
				h := middleware.Compress(5)(build(s))
				for i, accept := range []string{"gzip", "", "gzip"} {
					res := post(h, "/shop-a/payments/7", "k", accept)
					if got := res.Header.Get("Content-Encoding"); got != accept {
						t.Errorf("Content-Encoding is %q, want %q", got, accept)
					} else if got == "gzip" {
						var err error
						if res.Body, err = gzip.NewReader(res.Body); err != nil {
							t.Fatal(err)
						}
					}
					s.check(t, res, want{201, "payment 7: body", i > 0})
				}
				s.wantCharges(t, 1)
			})
			t.Run("a timeout outside: the work is completed, and the repeat gets its response", func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { // the timeout passes when the handler waits
					s := newShop()
					h := build(s)
					s.check(t, post(http.TimeoutHandler(h, time.Second, "late"), "/shop-a/payments/slow", "k", ""),
						want{503, "late", false})
					close(s.slow)
					s.check(t, post(h, "/shop-a/payments/slow", "k", ""), want{201, "payment slow: body", true})
					s.wantCharges(t, 1)
				})
			})
		})
	}
}
