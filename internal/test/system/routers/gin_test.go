package routers_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/gin-gonic/gin"

	"github.com/txonce/txonce/dedup/deduptest"
)

func init() { gin.SetMode(gin.ReleaseMode) }

func ginRouter(mount func(*gin.RouterGroup)) *gin.Engine {
	r := gin.New()
	r.Use(gin.CustomRecoveryWithWriter(nil, func(c *gin.Context, _ any) { c.AbortWithStatus(http.StatusInternalServerError) }))
	mount(r.Group("/shop-a"))
	mount(r.Group("/shop-b"))
	return r
}

func ginHandle(s *shop) http.Handler {
	return ginRouter(func(r *gin.RouterGroup) {
		r.POST("/payments/:id", func(c *gin.Context) {
			s.guard.Handle(func(ctx context.Context, tx *deduptest.Tx, w http.ResponseWriter, r *http.Request) error {
				status, text, err := s.charge(ctx, tx, c.Param("id"), r.Body)
				if err != nil {
					return err
				}
				return answer(w, status, text)
			}).ServeHTTP(c.Writer, c.Request)
		})
	})
}

// ginWrap has an engine inside of the Guard, whose handlers write to gin's Context.
func ginWrap(s *shop) http.Handler {
	charge := func(c *gin.Context) {
		tx, err := s.guard.Tx(c.Request.Context())
		if err != nil {
			c.Status(http.StatusInternalServerError)
			return
		}
		status, text, err := s.charge(c.Request.Context(), tx, c.Param("id"), c.Request.Body)
		if err != nil {
			c.Status(http.StatusInternalServerError)
			return
		}
		c.String(status, "%s", text)
	}
	inner := gin.New()
	inner.POST("/shop-a/payments/:id", charge)
	inner.POST("/shop-b/payments/:id", charge)
	return ginRouter(func(r *gin.RouterGroup) { r.POST("/payments/:id", gin.WrapH(s.guard.Wrap(inner))) })
}

// The parameters of a gin route can be read with http.Request.PathValue.
func TestGinPathValue(t *testing.T) {
	s := newShop()
	r := gin.New()
	pathValues := func(c *gin.Context) {
		for _, p := range c.Params {
			c.Request.SetPathValue(p.Key, p.Value)
		}
	}
	r.POST("/payments/:id", pathValues, gin.WrapH(s.guard.Handle(
		func(ctx context.Context, tx *deduptest.Tx, w http.ResponseWriter, r *http.Request) error {
			status, text, err := s.charge(ctx, tx, r.PathValue("id"), r.Body)
			if err != nil {
				return err
			}
			return answer(w, status, text)
		})))
	s.check(t, post(r, "/payments/7", "k", ""), want{201, "payment 7: body", false})
	s.check(t, post(r, "/payments/7", "k", ""), want{201, "payment 7: body", true})
	s.wantCharges(t, 1)
}

// With c.Next inside Wrap the handler writes to gin's own writer, so the client has its response before COMMIT. The
// Guard notices that, and commits nothing.
func TestGinNext(t *testing.T) {
	s := newShop()
	r := gin.New()
	r.Use(func(c *gin.Context) {
		s.guard.Wrap(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			c.Request = r
			c.Next()
		})).ServeHTTP(c.Writer, c.Request)
	})
	r.POST("/payments/:id", func(c *gin.Context) {
		tx, err := s.guard.Tx(c.Request.Context())
		if err == nil {
			err = tx.Add("charge")
		}
		if err != nil {
			t.Error(err)
		}
		c.String(http.StatusPaymentRequired, "declined")
	})
	s.check(t, post(r, "/payments/7", "k", ""), want{402, "declined", false})
	s.wantCharges(t, 0)
}

// In gin a Guard is the last handler of a route. Handlers of gin that exist already go into an engine of their own,
// inside Wrap: with c.Next they would write to the client before COMMIT.
func Example_gin() {
	s := newShop()
	pay := func(c *gin.Context) {
		s.guard.Handle(func(_ context.Context, tx *deduptest.Tx, w http.ResponseWriter, _ *http.Request) error {
			if err := tx.Add("charge"); err != nil {
				return err
			}
			_, err := fmt.Fprintln(w, "paid", c.Param("id")) // to w, and not to c
			return err
		}).ServeHTTP(c.Writer, c.Request)
	}
	refund := func(c *gin.Context) { // exists already
		tx, err := s.guard.Tx(c.Request.Context())
		if err == nil {
			err = tx.Add("refund")
		}
		if err != nil {
			c.AbortWithStatus(http.StatusInternalServerError) // rolls back
			return
		}
		c.String(http.StatusOK, "refunded %s\n", c.Param("id"))
	}
	existing := gin.New()
	existing.POST("/refunds/:id", refund)

	r := gin.New()
	r.Use(gin.Recovery()) // authentication and limits per client, too
	r.POST("/payments/:id", pay)
	r.POST("/refunds/:id", gin.WrapH(s.guard.Wrap(existing)))
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
