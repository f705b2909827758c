package routers_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/go-chi/chi/v5/middleware"

	"github.com/txonce/txonce/dedup/deduptest"
)

func chiRouter(mount func(chi.Router)) http.Handler {
	r := chi.NewRouter()
	r.Use(middleware.RequestLogger(quiet{}), middleware.Recoverer)
	r.Route("/shop-a", mount)
	b := chi.NewRouter()
	mount(b)
	r.Mount("/shop-b", b)
	return r
}

// quiet keeps the recoverer from printing stacks.
type quiet struct{}

func (quiet) NewLogEntry(*http.Request) middleware.LogEntry           { return quiet{} }
func (quiet) Write(int, int, http.Header, time.Duration, interface{}) {}
func (quiet) Panic(interface{}, []byte)                               {}

// chiHandler is a Handler that reads chi's parameters.
func (s *shop) chiHandler(ctx context.Context, tx *deduptest.Tx, w http.ResponseWriter, r *http.Request) error {
	status, text, err := s.charge(ctx, tx, chi.URLParam(r, "id"), r.Body)
	if err != nil {
		return err
	}
	return answer(w, status, text)
}

func chiHandle(s *shop) http.Handler {
	return chiRouter(func(r chi.Router) { r.Method(http.MethodPost, "/payments/{id}", s.guard.Handle(s.chiHandler)) })
}

func chiWrap(s *shop) http.Handler {
	return chiRouter(func(r chi.Router) {
		r.With(s.guard.Wrap).Post("/payments/{id}", func(w http.ResponseWriter, r *http.Request) {
			tx, err := s.guard.Tx(r.Context())
			if err == nil {
				err = s.chiHandler(r.Context(), tx, w, r)
			}
			if err != nil {
				http.Error(w, "failed", http.StatusInternalServerError)
			}
		})
	})
}

// A deadline of chi's ends the request's context, which no longer counts when the key is claimed.
func TestChiTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newShop()
		r := chi.NewRouter()
		r.Use(middleware.Timeout(time.Second))
		r.Method(http.MethodPost, "/payments/{id}", s.guard.Handle(func(ctx context.Context, tx *deduptest.Tx, w http.ResponseWriter, r *http.Request) error {
			<-time.After(2 * time.Second)
			return s.chiHandler(ctx, tx, w, r)
		}))
		s.check(t, post(r, "/payments/7", "k", ""), want{201, "payment 7: body", false})
		s.wantCharges(t, 1)
	})
}

// In chi a Guard is the last handler of a route, or a middleware of With. Use and Group would also guard the paths of
// other routes.
func Example_chi() {
	s := newShop()
	r := chi.NewRouter()
	r.Use(middleware.Recoverer) // authentication and limits per client, too
	r.Method(http.MethodPost, "/payments/{id}", s.guard.Handle(
		func(_ context.Context, tx *deduptest.Tx, w http.ResponseWriter, r *http.Request) error {
			if err := tx.Add("charge"); err != nil {
				return err
			}
			_, err := fmt.Fprintln(w, "paid", chi.URLParam(r, "id"))
			return err
		}))
	r.With(s.guard.Wrap).Post("/refunds/{id}", func(w http.ResponseWriter, r *http.Request) {
		// a handler that exists already
		tx, err := s.guard.Tx(r.Context())
		if err == nil {
			err = tx.Add("refund")
		}
		if err != nil {
			http.Error(w, "failed", http.StatusInternalServerError) // rolls back
			return
		}
		fmt.Fprintln(w, "refunded", chi.URLParam(r, "id"))
	})
	for _, path := range []string{"/payments/7", "/payments/7", "/refunds/7", "/refunds/7"} {
		req := httptest.NewRequest(http.MethodPost, path, nil)
		req.Header.Set("Idempotency-Key", "k1")
		w := httptest.NewRecorder()
		r.ServeHTTP(w, req)
		fmt.Print(w.Body)
	}
	fmt.Println(s.store.Database().Count("charge"), s.store.Database().Count("refund"))
	// Output:
	// paid 7
	// paid 7
	// refunded 7
	// refunded 7
	// 1 1
}
