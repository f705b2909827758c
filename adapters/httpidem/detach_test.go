package httpidem_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/txonce/txonce/adapters/httpidem"
	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/dedup/deduptest"
)

// What the end of a client's connection does, and other ends. Time is virtual.
func TestEnds(t *testing.T) {
	// inVirtualTime sends a request whose client is gone after a second, to a handler that takes two.
	inVirtualTime := func(t *testing.T, change func(c *config), check func(a *api, w *httptest.ResponseRecorder)) {
		t.Helper()
		synctest.Test(t, func(t *testing.T) {
			a := newAPI(t, change)
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			check(a, serve(a.slow(2*time.Second), request{}.make(ctx)))
		})
	}
	t.Run("case 17: a client that disconnects does not stop its handler", func(t *testing.T) {
		inVirtualTime(t, func(*config) {}, func(a *api, w *httptest.ResponseRecorder) {
			if w.Code != http.StatusCreated {
				t.Errorf("status %d", w.Code)
			}
			a.wantEffects(1)
			a.same(w, a.want(a.create(), request{}, http.StatusCreated, true))
		})
	})
	t.Run("case 18: with FollowClient it does, and leaves nothing", func(t *testing.T) {
		inVirtualTime(t, func(c *config) { c.FollowClient = true }, func(a *api, w *httptest.ResponseRecorder) {
			wantProblem(t, w, http.StatusServiceUnavailable, httpidem.Disconnected)
			a.wantEffects(0)
			a.want(a.create(), request{}, http.StatusCreated, false)
		})
	})
	t.Run("case 17: the handler has a deadline of its own", func(t *testing.T) {
		inVirtualTime(t, func(c *config) { c.Timeout = 1500 * time.Millisecond }, func(a *api, w *httptest.ResponseRecorder) {
			wantProblem(t, w, http.StatusServiceUnavailable, httpidem.TimedOut)
			a.wantEffects(0)
			a.want(a.create(), request{}, http.StatusCreated, false)
		})
	})
	t.Run("case 17: a handler that ignores its deadline commits nothing", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			a := newAPI(t, func(c *config) { c.Timeout = time.Second })
			h := a.guard.Handle(func(ctx context.Context, tx *deduptest.Tx, w http.ResponseWriter, _ *http.Request) error {
				if deadline, ok := ctx.Deadline(); !ok || time.Until(deadline) != time.Second {
					t.Errorf("deadline %v", deadline)
				}
				<-time.After(2 * time.Second)
				w.WriteHeader(http.StatusCreated)
				return tx.Add("effect")
			})
			a.refused(h, request{}, http.StatusServiceUnavailable, httpidem.TimedOut)
			a.wantEffects(0)
		})
	})
	t.Run("case 17: Base ends handlers at shutdown", func(t *testing.T) {
		base, stop := context.WithCancel(t.Context())
		synctest.Test(t, func(t *testing.T) {
			base, stop = context.WithCancel(t.Context())
			a := newAPI(t, func(c *config) { c.Base = base })
			time.AfterFunc(time.Second, stop)
			began := time.Now()
			a.refused(a.slow(time.Minute), request{}, http.StatusServiceUnavailable, httpidem.Unavailable)
			if took := time.Since(began); took != time.Second {
				t.Errorf("it ended after %v", took)
			}
			a.wantEffects(0)
		})
		stop()
	})
	t.Run("case 17: a request without a key ends with its client", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			a := newAPI(t, func(c *config) { c.Optional = true })
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			wantProblem(t, serve(a.slow(2*time.Second), request{noKey: true}.make(ctx)), http.StatusServiceUnavailable,
				httpidem.Disconnected)
			a.wantEffects(0)
		})
	})
	t.Run("E3: clients that are gone before the claim run nothing", func(t *testing.T) {
		a := newAPI(t)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		for range 40 {
			wantProblem(t, serve(a.create(), request{}.make(ctx)), http.StatusServiceUnavailable, httpidem.Disconnected)
		}
		a.wantEffects(0)
	})
	t.Run("E3: clients that go while their key is held run nothing", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			a := newAPI(t, func(c *config) { c.Wait = time.Minute })
			other := newAPIOn(t, a.store.Database().NewStore())
			var wg sync.WaitGroup
			wg.Go(func() { // another process, whose work is rolled back
				h := other.slow(10 * time.Second)
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				serve(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { h.ServeHTTP(w, r) }),
					request{}.make(ctx))
			})
			synctest.Wait()
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			wantProblem(t, serve(a.create(), request{}.make(ctx)), http.StatusServiceUnavailable, httpidem.Disconnected)
			wg.Wait()
			a.wantEffects(1) // of the other process
		})
	})
	t.Run("E3: a claim that gets no answer ends", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			a := newAPI(t, func(c *config) { c.Store = stuckStore{deduptest.NewStore()} })
			began := time.Now()
			a.refused(a.create(), request{}, http.StatusServiceUnavailable, httpidem.Busy)
			if took := time.Since(began); took != 5*time.Second {
				t.Errorf("it ended after %v", took)
			}
		})
	})
}

// stuckStore is a store whose pool never has a free connection.
type stuckStore struct{ *deduptest.Store }

func (stuckStore) InTx(ctx context.Context, _ []dedup.Record, _ func(*deduptest.Tx, []dedup.Claim) error) error {
	<-ctx.Done()
	return ctx.Err()
}

// A handler's goroutine that goes on after the handler has returned gets nothing done.
func TestTimeoutHandlerInside(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAPI(t)
		late := make(chan error, 3)
		h := a.guard.Wrap(http.TimeoutHandler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			<-time.After(2 * time.Second)
			_, err := a.guard.Tx(r.Context())
			late <- err
			_, err = httpidem.DownstreamKey(r.Context(), "late")
			late <- err
			_, err = io.WriteString(w, "late")
			late <- err
		}), time.Second, "too slow"))
		a.want(h, request{}, http.StatusServiceUnavailable, false)
		for range 3 {
			if err := <-late; err == nil {
				t.Error("E13: a goroutine still had its transaction, its key or its response after the handler had returned")
			}
		}
		a.wantEffects(0)
	})
	t.Run("E13: a goroutine that writes late", func(t *testing.T) {
		a := newAPI(t)
		returned, wrote := make(chan struct{}), make(chan error)
		w := a.send(a.writes(func(w http.ResponseWriter) {
			go func() {
				<-returned
				w.WriteHeader(http.StatusTeapot)
				_, err := io.WriteString(w, "late")
				if late := http.NewResponseController(w).SetWriteDeadline(time.Now()); late == nil ||
					errors.Is(late, http.ErrNotSupported) {
					t.Errorf("a deadline for the connection's next request: %v", late)
				}
				wrote <- err
			}()
		}), request{})
		close(returned)
		if err := <-wrote; err == nil || w.Code != http.StatusOK || w.Body.Len() > 0 {
			t.Errorf("%v, status %d, %q", err, w.Code, w.Body)
		}
	})
	t.Run("E13: a TimeoutHandler outside loses the response, and the retry gets it", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			a := newAPI(t)
			inner := a.slow(2 * time.Second)
			h := http.TimeoutHandler(inner, time.Second, "too slow")
			a.want(h, request{}, http.StatusServiceUnavailable, false)
			<-time.After(2 * time.Second)
			a.want(h, request{}, http.StatusCreated, true)
			a.wantEffects(1)
		})
	})
}
