package applehook_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/txonce/txonce/adapters/webhook"
	"github.com/txonce/txonce/internal/await"
)

func TestOCSPCache(t *testing.T) {
	c := newChain(t, withOCSP)
	content := body(t, c.sign(t, with(notification(), m{"signedDate": nil})))
	long := each24h()
	t.Run("R5: an answer is used for 15 minutes", func(t *testing.T) {
		r := newResponder(t, c)
		r.change = long
		v := newVerifier(t, c, ask(r))
		for _, tt := range []struct {
			after time.Duration
			want  int // requests
		}{{0, 2}, {15*time.Minute - time.Second, 2}, {15 * time.Minute, 4}, {16 * time.Minute, 4}} {
			if _, err := verifyAt(t, v, content, received.Add(tt.after)); err != nil || r.count() != tt.want {
				t.Errorf("after %v: %d requests, want %d, %v", tt.after, r.count(), tt.want, err)
			}
		}
	})
	t.Run("a failure is remembered for 10 seconds", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			r := newResponder(t, c)
			v := newVerifier(t, c, ask(r))
			r.down = true
			for range 3 {
				if _, err := verify(t, v, content); err == nil || webhook.RefusalOf(err) != "" {
					t.Error(err)
				}
			}
			if n := r.count(); n != 1 {
				t.Errorf("%d requests, want 1", n)
			}
			r.down = false
			sleep(t, 10*time.Second)
			if _, err := verify(t, v, content); err != nil {
				t.Error(err)
			}
		})
	})
	t.Run("R5: 32 answers are remembered, the newest", func(t *testing.T) {
		r := newResponder(t, c)
		r.change = long
		v := newVerifier(t, c, ask(r))
		bodies := make([][]byte, 33)
		for i := range bodies {
			leaf := chain{
				issue(t, c.intermediate, options{name: "leaf", marks: c.marks(), ocsp: []string{leafURL}}),
				c.intermediate, c.root,
			}
			bodies[i] = body(t, leaf.sign(t, with(notification(), m{"signedDate": nil})))
			if _, err := verifyAt(t, v, bodies[i], received.Add(time.Duration(i)*time.Second)); err != nil {
				t.Fatal(err)
			}
		}
		before := r.count()
		for i := len(bodies) - 1; i >= 0; i-- {
			if _, err := verifyAt(t, v, bodies[i], received.Add(time.Minute)); err != nil {
				t.Fatal(err)
			}
			if got, want := r.count()-before, map[bool]int{true: 2}[i == 0]; got != want {
				t.Fatalf("leaf %d: %d requests, want %d", i, got, want)
			}
		}
	})
	t.Run("several deliveries ask once", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			r := newResponder(t, c)
			r.wait = make(chan struct{})
			v := newVerifier(t, c, ask(r))
			var all sync.WaitGroup
			for range 20 {
				all.Go(func() {
					if _, err := verify(t, v, content); err != nil {
						t.Error(err)
					}
				})
			}
			synctest.Wait()
			ctx, cancel := context.WithCancel(t.Context())
			all.Go(func() {
				if _, err := v.Verify(ctx, &webhook.Delivery{Body: content, Time: received}); !errors.Is(err,
					context.Canceled) || webhook.RefusalOf(err) != "" {
					t.Errorf("a delivery whose request ended: %v", err)
				}
			})
			synctest.Wait()
			cancel()
			synctest.Wait()
			close(r.wait)
			all.Wait()
			if n := r.count(); n != 2 {
				t.Errorf("%d requests", n)
			}
		})
	})
	t.Run("case 59: a responder that hangs is given up after 10 seconds, and no delivery waits longer than its ctx", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			r := newResponder(t, c)
			r.wait = make(chan struct{})
			v := newVerifier(t, c, ask(r))
			began := time.Now()
			for _, tt := range []struct{ limit, want time.Duration }{
				{2 * time.Second, 2 * time.Second},
				{time.Minute, 10 * time.Second},
				{time.Minute, 10 * time.Second},
			} {
				ctx, cancel := context.WithTimeout(t.Context(), tt.limit)
				if _, err := v.Verify(ctx, &webhook.Delivery{Body: content, Time: received}); err == nil ||
					webhook.RefusalOf(err) != "" {
					t.Error(err)
				}
				cancel()
				if took := time.Since(began); took != tt.want {
					t.Errorf("answered after %v, want %v", took, tt.want)
				}
			}
		})
	})
}

func sleep(t *testing.T, d time.Duration) {
	t.Helper()
	if err := await.Sleep(t.Context(), d); err != nil {
		t.Fatal(err)
	}
}

// each24h makes answers that are valid for a day.
func each24h() func(*tbsResponse) {
	return func(tbs *tbsResponse) { tbs.Responses[0].Next = received.Add(24 * time.Hour) }
}
