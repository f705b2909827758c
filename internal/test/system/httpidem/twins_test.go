package httpidem_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/txonce/txonce/adapters/httpidem"
	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/dedup/deduptest"
)

// Requests with one key at the same time. Time is virtual.
func TestTwins(t *testing.T) {
	const clients = 50
	all := func(a *api, hs ...http.Handler) (answers [clients]*httptest.ResponseRecorder) {
		var wg sync.WaitGroup
		for i := range clients {
			wg.Go(func() { answers[i] = a.send(hs[i%len(hs)], request{}) })
		}
		wg.Wait()
		return answers
	}
	for _, tt := range []struct {
		name       string
		wait, work time.Duration
		took       time.Duration // until the last answer
		conflict   bool
		processes  int
	}{
		{"case 14: twins of a quick request wait and get its response", 0, time.Second, time.Second, false, 1},
		{
			"case 14: twins of a slow request get 409 after Wait", 3 * time.Second, 10 * time.Second, 10 * time.Second,
			true, 1,
		},
		{"case 14: a negative Wait answers at once", -1, 10 * time.Second, 10 * time.Second, true, 1},
		{"case 14: twins in other processes wait, too", 5 * time.Second, time.Second, 2 * time.Second, false, 5},
		{
			"case 14: twins of a slow request in another process", 3 * time.Second, 10 * time.Second, 10 * time.Second,
			true, 5,
		},
		{"E12: a Wait of 500 us is not endless", 500 * time.Microsecond, 10 * time.Second, 10 * time.Second, true, 5},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := deduptest.NewStore()
				var hs []http.Handler
				var a *api
				for range tt.processes {
					a = newAPIOn(t, store.Database().NewStore(), func(c *config) { c.Wait = tt.wait })
					hs = append(hs, a.slow(tt.work))
				}
				began := time.Now()
				answers := all(a, hs...)
				if took := time.Since(began); took < tt.work || took > tt.took {
					t.Errorf("it took %v, want %v to %v", took, tt.work, tt.took)
				}
				first := 0
				for _, w := range answers {
					switch {
					case w.Code == http.StatusCreated && !isReplay(w):
						first++
					case tt.conflict:
						wantProblem(t, w, http.StatusConflict, httpidem.InFlight)
						if w.Header().Get("Retry-After") == "" {
							t.Error("409 without Retry-After")
						}
					case w.Code != http.StatusCreated:
						t.Errorf("status %d: %s", w.Code, w.Body)
					}
				}
				if first != 1 {
					t.Errorf("%d first responses", first)
				}
				a.wantEffects(1)
				a.want(hs[0], request{}, http.StatusCreated, true)
			})
		})
	}
	t.Run("E2: twins in one process hold one connection together", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			spy := &spyStore{Store: deduptest.NewStore()}
			var most atomic.Int64
			spy.before = func(int, []dedup.Record) { most.Store(max(most.Load(), int64(spy.Database().Open())+1)) }
			a := newAPIOn(t, spy.Store, func(c *config) { c.Store = spy })
			all(a, a.slow(time.Second))
			if n := most.Load(); n != 1 {
				t.Errorf("%d transactions at once", n)
			}
			a.wantEffects(1)
		})
	})
	t.Run("E2: MaxConcurrent", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			a := newAPI(t, func(c *config) { c.MaxConcurrent = 3 })
			var running, most atomic.Int64
			h := a.guard.Handle(func(_ context.Context, tx *deduptest.Tx, _ http.ResponseWriter, _ *http.Request) error {
				most.Store(max(most.Load(), running.Add(1)))
				defer running.Add(-1)
				<-time.After(time.Second)
				return tx.Add("effect")
			})
			var busy, done atomic.Int64
			var wg sync.WaitGroup
			for i := range clients {
				wg.Go(func() {
					switch w := a.send(h, request{key: fmt.Sprint(i)}); w.Code {
					case http.StatusOK:
						done.Add(1)
					default:
						wantProblem(t, w, http.StatusServiceUnavailable, httpidem.Busy)
						busy.Add(1)
					}
				})
			}
			wg.Wait()
			if most.Load() != 3 || done.Load() < 15 || busy.Load() == 0 {
				t.Errorf("%d at once, %d done, %d busy", most.Load(), done.Load(), busy.Load())
			}
			a.wantEffects(int(done.Load()))
		})
	})
	t.Run("a waiting twin whose client goes away leaves", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			a := newAPI(t, func(c *config) { c.Wait = time.Minute })
			h := a.slow(10 * time.Second)
			var wg sync.WaitGroup
			wg.Go(func() { a.want(h, request{}, http.StatusCreated, false) })
			synctest.Wait()
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			began := time.Now()
			wantProblem(t, serve(h, request{}.make(ctx)), http.StatusServiceUnavailable, httpidem.Disconnected)
			if took := time.Since(began); took != time.Second {
				t.Errorf("it left after %v", took)
			}
			wg.Wait()
		})
	})
	t.Run("case 14: the twin of a request that fails runs", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			a := newAPI(t)
			var wg sync.WaitGroup
			wg.Go(func() {
				a.want(a.guard.Handle(func(context.Context, *deduptest.Tx, http.ResponseWriter, *http.Request) error {
					<-time.After(time.Second)
					return errHandler
				}), request{}, http.StatusInternalServerError, false)
			})
			synctest.Wait()
			a.want(a.create(), request{}, http.StatusCreated, false)
			wg.Wait()
			a.wantEffects(1)
		})
	})
}
