package httpidem_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"testing"

	"github.com/txonce/txonce/adapters/httpidem"
	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/dedup/deduptest"
)

// COMMIT fails, or gets no answer.
func TestCommitFails(t *testing.T) {
	for _, tt := range []struct {
		name         string
		commit       func(n int, ctx context.Context, tx *deduptest.Tx) error // n counts from 1
		handle, wrap int                                                      // status
		replayed     bool                                                     // by Handle
		// runs of Handle's handler; status of a retry after it
		runs, afterHandle int
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
			a.want(a.guard.Wrap(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { runs++ })),
				request{key: "w"}, tt.wrap, false)
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
		a.store.OnCommit = func(_ context.Context,
			tx *deduptest.Tx,
		) error {
			return errors.Join(tx.Rollback(), deduptest.ErrDown)
		}
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
			// the row is gone, as after a ROLLBACK that nobody noticed
			return errors.Join(tx.Add("effect"), spy.Forget(ctx, tx, key))
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
		if err != nil || string(body) != "a=1" || r.URL.Path != "/orders/7" || r.Header.Get("X-Mine") != "" ||
			r.PathValue("id") != "7" || r.Form != nil || r.Context() != ctx {
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
