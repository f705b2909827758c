package routers_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/labstack/echo/v5"
	"github.com/labstack/echo/v5/middleware"

	"github.com/txonce/txonce/adapters/httpidem"
	"github.com/txonce/txonce/dedup/deduptest"
)

func echoRouter(mount func(*echo.Group)) http.Handler {
	e := echo.New()
	e.Logger = slog.New(slog.DiscardHandler)
	e.Use(middleware.Recover())
	mount(e.Group("/shop-a"))
	mount(e.Group("/shop-b"))
	return e
}

// echoHandler is a Handler that reads echo's parameters, which echo.WrapHandler has put into the request.
func (s *shop) echoHandler(ctx context.Context, tx *deduptest.Tx, w http.ResponseWriter, r *http.Request) error {
	status, text, err := s.charge(ctx, tx, r.PathValue("id"), r.Body)
	if err != nil {
		return err
	}
	return answer(w, status, text)
}

func echoHandle(s *shop) http.Handler {
	return echoRouter(func(g *echo.Group) { g.POST("/payments/:id", echo.WrapHandler(s.guard.Handle(s.echoHandler))) })
}

// echoWrap has handlers of net/http inside of the Guard.
func echoWrap(s *shop) http.Handler {
	return echoRouter(func(g *echo.Group) {
		g.POST("/payments/:id", echo.WrapHandler(s.guard.Wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			tx, err := s.guard.Tx(r.Context())
			if err == nil {
				err = s.echoHandler(r.Context(), tx, w, r)
			}
			if err != nil {
				http.Error(w, "failed", http.StatusInternalServerError)
			}
		}))))
	})
}

// guarded returns an echo handler that runs h in the Guard's transaction.
func guarded[TTx any](g *httpidem.Guard[TTx], h func(c *echo.Context, tx TTx) error) echo.HandlerFunc {
	return func(c *echo.Context) error {
		client, request := c.Response(), c.Request()
		defer func() { // also for a recoverer
			c.SetResponse(client)
			c.SetRequest(request)
		}()
		g.Handle(func(_ context.Context, tx TTx, w http.ResponseWriter, r *http.Request) error {
			res := echo.NewResponse(w, c.Logger())
			c.SetResponse(res)
			c.SetRequest(r)
			err := h(c, tx)
			if errors.As(err, new(echo.HTTPStatusCoder)) {
				c.Echo().HTTPErrorHandler(c, err) // writes the error's status, unless h has written a response before
				if res.Committed && res.Status >= 400 {
					return nil // rolls back, and the client gets this response
				}
			}
			return err // an error of the database, which the Guard may try again
		}).ServeHTTP(client, request)
		return nil
	}
}

func echoGuarded(s *shop) http.Handler {
	return echoRouter(func(g *echo.Group) {
		g.POST("/payments/:id", guarded(s.guard, func(c *echo.Context, tx *deduptest.Tx) error {
			status, text, err := s.charge(c.Request().Context(), tx, c.Param("id"), c.Request().Body)
			if err != nil {
				return err
			}
			return c.String(status, text)
		}))
	})
}

// Errors of an echo handler roll back, whatever it wrote before.
func TestEchoErrors(t *testing.T) {
	for _, tt := range []struct {
		name   string
		handle func(c *echo.Context) error
		want   want
	}{
		{
			"an HTTPError", func(*echo.Context) error { return echo.NewHTTPError(http.StatusForbidden, "no") },
			want{403, `{"message":"no"}` + "\n", false},
		},
		{"another error", func(*echo.Context) error { return io.ErrUnexpectedEOF }, want{500, "", false}},
		{
			"an HTTPError after a response", func(c *echo.Context) error {
				return errors.Join(c.String(http.StatusCreated, "paid"), echo.NewHTTPError(http.StatusForbidden, "no"))
			}, want{500, "", false},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := newShop()
			e := echo.New()
			e.POST("/payments/:id", guarded(s.guard, func(c *echo.Context, tx *deduptest.Tx) error {
				if err := tx.Add("charge"); err != nil {
					return err
				}
				return tt.handle(c)
			}))
			for range 2 {
				s.check(t, post(e, "/payments/7", "k", ""), tt.want)
			}
			s.wantCharges(t, 0)
		})
	}
}

// echo's own compression and deadline are outside. The deadline does not count any more when the key is claimed.
func TestEchoMiddlewares(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newShop()
		e := echo.New()
		e.Use(middleware.Gzip(), middleware.ContextTimeout(time.Second))
		e.POST("/payments/:id", echo.WrapHandler(s.guard.Handle(func(ctx context.Context, tx *deduptest.Tx, w http.ResponseWriter, r *http.Request) error {
			<-time.After(2 * time.Second)
			return s.echoHandler(ctx, tx, w, r)
		})))
		if res := post(e, "/payments/7", "k", "gzip"); res.StatusCode != http.StatusCreated ||
			res.Header.Get("Content-Encoding") != "gzip" {
			t.Errorf("got %d, %v", res.StatusCode, res.Header)
		}
		s.check(t, post(e, "/payments/7", "k", ""), want{201, "payment 7: body", true})
		s.wantCharges(t, 1)
	})
}

// TestEchoWrapMiddleware shows why the documentation warns of echo.WrapMiddleware(guard.Wrap): echo answers the error
// of a handler after the Guard has committed. If this test fails, the warning can go.
func TestEchoWrapMiddleware(t *testing.T) {
	s := newShop()
	e := echo.New()
	e.POST("/payments/:id", func(c *echo.Context) error {
		tx, err := s.guard.Tx(c.Request().Context())
		if err != nil {
			return err
		}
		return errors.Join(tx.Add("charge"), echo.ErrForbidden)
	}, echo.WrapMiddleware(s.guard.Wrap))
	s.check(t, post(e, "/payments/7", "k", ""), want{200, "", false})
	s.wantCharges(t, 1)
}

// In echo a Guard is the last handler of a route. guarded, in this file, gives a handler both an *echo.Context and the
// transaction.
func Example_echo() {
	s := newShop()
	e := echo.New()
	e.Use(middleware.Recover()) // authentication and limits per client, too
	e.POST("/payments/:id", echo.WrapHandler(s.guard.Handle(
		func(_ context.Context, tx *deduptest.Tx, w http.ResponseWriter, r *http.Request) error {
			if err := tx.Add("charge"); err != nil {
				return err
			}
			_, err := fmt.Fprintln(w, "paid", r.PathValue("id"))
			return err
		})))
	e.POST("/refunds/:id", guarded(s.guard, func(c *echo.Context, tx *deduptest.Tx) error {
		if err := tx.Add("refund"); err != nil {
			return err
		}
		return c.String(http.StatusOK, "refunded "+c.Param("id")+"\n")
	}))
	for _, path := range []string{"/payments/7", "/payments/7", "/refunds/7", "/refunds/7"} {
		req := httptest.NewRequest(http.MethodPost, path, nil)
		req.Header.Set("Idempotency-Key", "k1")
		w := httptest.NewRecorder()
		e.ServeHTTP(w, req)
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
