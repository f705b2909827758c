package httpidem_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/txonce/txonce/adapters/httpidem"
	"github.com/txonce/txonce/dedup/deduptest"
)

// Who may get a replay.
func TestPrincipals(t *testing.T) {
	t.Run("case 11: the answer to another tenant's key tells nothing", func(t *testing.T) {
		a := newAPI(t)
		a.want(a.create(), request{user: "ann", key: "used"}, http.StatusCreated, false)
		used := a.want(a.status(http.StatusOK), request{user: "bob", key: "used"}, http.StatusOK, false)
		fresh := a.want(a.status(http.StatusOK), request{user: "bob", key: "fresh"}, http.StatusOK, false)
		a.same(used, fresh)
	})
	t.Run("case 12: probing 10,000 keys shows no difference", func(t *testing.T) {
		a := newAPI(t)
		h := a.status(http.StatusOK)
		for i := range 100 {
			// a space without quotes
			a.want(h, request{user: "ann", key: fmt.Sprint("key ", i)}, http.StatusBadRequest, false)
			a.want(h, request{user: "ann", key: fmt.Sprint("key-", i)}, http.StatusOK, false)
		}
		first := a.want(h, request{user: "mallory", key: "key-0"}, http.StatusOK, false)
		for i := 1; i < 10_000; i++ {
			a.same(first, a.want(h, request{user: "mallory", key: fmt.Sprint("key-", i)}, http.StatusOK, false))
		}
	})
	t.Run("case 13: nobody gets no replay", func(t *testing.T) {
		a := newAPI(t)
		a.want(a.create(), request{}, http.StatusCreated, false)
		for range 2 {
			r := request{}.make(t.Context())
			r.Header.Del("X-User")
			wantProblem(t, serve(a.create(), r), http.StatusUnauthorized, httpidem.NoPrincipal)
		}
		a.wantEffects(1)
	})
	t.Run("case 13: a Principal that fails", func(t *testing.T) {
		a := newAPI(t, func(c *config) {
			c.Principal = func(*http.Request) (string, error) { return "ann", errors.New("session expired") }
		})
		w := a.refused(a.create(), request{}, http.StatusUnauthorized, httpidem.NoPrincipal)
		if strings.Contains(w.Body.String(), "session") {
			t.Errorf("the client sees the error: %s", w.Body)
		}
		a.wantEffects(0)
	})
	t.Run("case 13: Anonymous shares keys", func(t *testing.T) {
		a := newAPI(t, func(c *config) { c.Principal = httpidem.Anonymous })
		a.want(a.create(), request{user: "ann"}, http.StatusCreated, false)
		a.want(a.create(), request{user: "bob"}, http.StatusCreated, true)
	})
	t.Run("case 41: authentication runs before a replay", func(t *testing.T) {
		a := newAPI(t)
		revoked := false
		h := a.create()
		auth := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if revoked {
				w.WriteHeader(http.StatusUnauthorized)
				return
			}
			h.ServeHTTP(w, r)
		})
		a.want(auth, request{}, http.StatusCreated, false)
		a.want(auth, request{}, http.StatusCreated, true)
		revoked = true
		a.want(auth, request{}, http.StatusUnauthorized, false)
	})
	t.Run("case 45: a replay spends no quota, and an inner 429 is not recorded", func(t *testing.T) {
		a := newAPI(t)
		quota := 1
		h := a.guard.Handle(func(_ context.Context, tx *deduptest.Tx, w http.ResponseWriter, _ *http.Request) error {
			if quota == 0 {
				w.WriteHeader(http.StatusTooManyRequests)
				return nil
			}
			quota--
			return tx.Add("effect")
		})
		a.want(h, request{key: "k1"}, http.StatusOK, false)
		a.want(h, request{key: "k1"}, http.StatusOK, true)
		a.want(h, request{key: "k2"}, http.StatusTooManyRequests, false)
		quota = 1
		a.want(h, request{key: "k2"}, http.StatusOK, false)
		a.wantEffects(2)
	})
}
