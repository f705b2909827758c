package webhook_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/txonce/txonce/adapters/webhook"
	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/consumer/consumertest"
	"github.com/txonce/txonce/dedup"
)

// slow is a handler that takes d and then counts, unless its context ends.
func slow(d time.Duration) consumer.Handler[tx] {
	return func(ctx context.Context, tx tx, m *consumer.Message) error {
		select {
		case <-time.After(d):
			return tx.Add(m.ID)
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// hold keeps the key of an event in a transaction of another process until release.
func hold(t *testing.T, store *consumertest.Store, id string) (release func()) {
	t.Helper()
	other, held, done := consumertest.NewStoreOn(store.Database()), make(chan struct{}), make(chan struct{})
	finished := make(chan struct{})
	go func() {
		defer close(finished)
		rec := dedup.Record{Key: dedup.Key{Consumer: "billing", Tenant: "shop/live", ID: id}}
		_ = other.InTx(context.WithoutCancel(t.Context()), []dedup.Record{rec}, func(tx, []dedup.Claim) error {
			close(held)
			<-done
			return errors.New("rolled back")
		})
	}()
	<-held
	return func() { close(done); <-finished }
}

// A delivery's work follows its client until the claim, and is finished after it.
func TestTheClientHangsUp(t *testing.T) {
	t.Run("case 17: before the claim", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s, store, ran := newShop(), consumertest.NewStore(), 0
			c := billing(t, consumer.Config[tx]{Store: store, Handle: func(ctx context.Context, tx tx, m *consumer.Message) error {
				ran++
				return count(ctx, tx, m)
			}})
			r := newReceiver(t, webhook.Config{Verifier: s, Processor: c})
			release := hold(t, store, "1")
			ctx, hangUp := context.WithCancel(t.Context())
			time.AfterFunc(100*time.Millisecond, hangUp)
			do(r, s.request(ctx, shopEvent{ID: "1"}))
			synctest.Wait() // the claim has noticed
			release()
			synctest.Wait()
			if err := r.Shutdown(t.Context()); err != nil {
				t.Error(err)
			}
			if ran != 0 {
				t.Errorf("E3: the handler ran %d times for a client that was gone before the claim", ran)
			}
			wantCount(t, store, "1", 0)
		})
	})
	t.Run("case 17: after the claim", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s, store, hooks := newShop(), consumertest.NewStore(), &traced{}
			r := newReceiver(t, webhook.Config{Verifier: s, Processor: billing(t, consumer.Config[tx]{Store: store, Handle: slow(time.Second)}), Trace: hooks.trace()})
			ctx, hangUp := context.WithCancel(context.WithValue(t.Context(), valueKey{}, "kept"))
			time.AfterFunc(100*time.Millisecond, hangUp)
			began := time.Now()
			do(r, s.request(ctx, shopEvent{ID: "1"}))
			if took := time.Since(began); took != 100*time.Millisecond {
				t.Errorf("the request took %v although the client was gone", took)
			}
			if err := r.Shutdown(t.Context()); err != nil {
				t.Error(err)
			}
			if took := time.Since(began); took != time.Second {
				t.Errorf("Shutdown returned after %v, want 1s when the handler returns", took)
			}
			wantCount(t, store, "1", 1)
			if hooks.String() != "answered 503, accepted 1" {
				t.Errorf("hooks %q", hooks)
			}
		})
	})
	t.Run("middleware ends the request's context: the response is not 200", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s, store := newShop(), consumertest.NewStore()
			r := newReceiver(t, webhook.Config{Verifier: s, Processor: billing(t, consumer.Config[tx]{Store: store, Handle: slow(time.Second)})})
			ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
			defer cancel()
			// a recorder, like net/http, takes no response for 200
			wantStatus(t, do(r, s.request(ctx, shopEvent{ID: "1"})), 503)
		})
	})
	t.Run("the handler's context has the request's values", func(t *testing.T) {
		s := newShop()
		var got any
		r := newReceiver(t, webhook.Config{Verifier: s, Processor: billing(t, consumer.Config[tx]{Handle: func(ctx context.Context, _ tx, _ *consumer.Message) error {
			got = ctx.Value(valueKey{})
			return nil
		}})})
		do(r, s.request(context.WithValue(t.Context(), valueKey{}, "kept"), shopEvent{ID: "1"}))
		if got != "kept" {
			t.Errorf("value %v", got)
		}
	})
}

type valueKey struct{}

// A handler that needs longer than the sender waits would never finish if it were cancelled with each delivery.
func TestTheSendersDeadline(t *testing.T) {
	t.Run("E21: a handler slower than the sender", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s, store, hooks, runs := newShop(), consumertest.NewStore(), &traced{}, 0
			s.source.Deadline = 300 * time.Millisecond
			r := newReceiver(t, webhook.Config{Verifier: s, Trace: hooks.trace(), Processor: billing(t, consumer.Config[tx]{Store: store, Handle: func(ctx context.Context, tx tx, m *consumer.Message) error {
				runs++
				return slow(400*time.Millisecond)(ctx, tx, m)
			}})})
			deliver := func(want int) {
				t.Helper()
				ctx, cancel := context.WithTimeout(t.Context(), s.source.Deadline) // the sender closes the connection
				defer cancel()
				began := time.Now()
				res := do(r, s.request(ctx, shopEvent{ID: "1", Created: time.Now()}))
				wantStatus(t, res, want)
				if took := time.Since(began); took > 150*time.Millisecond {
					t.Errorf("answered after %v, too near to %v", took, s.source.Deadline)
				}
				if want == 503 && res.Header.Get("Retry-After") == "" {
					t.Error("no Retry-After")
				}
			}
			deliver(503) // the handler goes on
			deliver(503) // case 63: it is in flight
			<-time.After(200 * time.Millisecond)
			deliver(200)
			if runs != 1 {
				t.Errorf("%d runs", runs)
			}
			wantCount(t, store, "1", 1)
			if want := "late 503, answered 503, deferred 1, answered 503, accepted 1, duplicate 1, answered 200"; hooks.String() != want && hooks.String() !=
				"late 503, answered 503, answered 503, deferred 1, accepted 1, duplicate 1, answered 200" {
				t.Errorf("hooks %q, want %q", hooks, want)
			}
		})
	})
	t.Run("the response comes a tenth of the deadline earlier", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := newShop()
			r := newReceiver(t, webhook.Config{Verifier: s, Processor: billing(t, consumer.Config[tx]{Handle: slow(time.Minute)})})
			began := time.Now()
			wantStatus(t, s.send(t, r, shopEvent{ID: "1"}), 503)
			if took := time.Since(began); took != 9*time.Second {
				t.Errorf("answered after %v, want 9s", took)
			}
		})
	})
	t.Run("an unclaimed event is not handled after the answer", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s, store, ran := newShop(), consumertest.NewStore(), 0
			s.source.Deadline = time.Second
			wait := make(chan struct{})
			c := billing(t, consumer.Config[tx]{Store: store, Handle: func(context.Context, tx, *consumer.Message) error { ran++; return nil }})
			r := newReceiver(t, webhook.Config{Verifier: s, Processor: answers(func(ctx context.Context, msgs []*consumer.Message) []error {
				<-wait // for a connection, for example
				return c.ProcessBatch(ctx, msgs)
			})})
			wantStatus(t, s.send(t, r, shopEvent{ID: "1"}), 503)
			synctest.Wait()
			close(wait)
			if err := r.Shutdown(t.Context()); err != nil {
				t.Error(err)
			}
			if ran != 0 {
				t.Error("the handler ran although nobody waits for it and nothing was claimed")
			}
		})
	})
	t.Run("the Verifier's context ends before the deadline", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := newShop()
			s.before = func(ctx context.Context, _ *webhook.Delivery) error { <-ctx.Done(); return context.Cause(ctx) }
			r := newReceiver(t, webhook.Config{Verifier: s, Processor: always(nil)})
			began := time.Now()
			wantStatus(t, s.send(t, r, shopEvent{ID: "1"}), 503)
			if took := time.Since(began); took != 9*time.Second {
				t.Errorf("answered after %v, want 9s", took)
			}
		})
	})
}

// The same event arrives twice at once.
func TestTwins(t *testing.T) {
	for _, where := range []string{"in one process", "on two nodes"} {
		t.Run("case 63: "+where, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, store := newShop(), consumertest.NewStore()
				other := store
				if where == "on two nodes" {
					other = consumertest.NewStoreOn(store.Database())
				}
				c := billing(t, consumer.Config[tx]{Store: store, Handle: slow(5 * time.Second)})
				d := c
				if other != store {
					d = billing(t, consumer.Config[tx]{Store: other, Handle: slow(5 * time.Second)})
				}
				a, b := newReceiver(t, webhook.Config{Verifier: s, Processor: c}),
					newReceiver(t, webhook.Config{Verifier: s, Processor: d})
				var wg sync.WaitGroup
				wg.Go(func() { wantStatus(t, s.send(t, a, shopEvent{ID: "1"}), 200) })
				synctest.Wait()
				res := s.send(t, b, shopEvent{ID: "1"})
				wantStatus(t, res, 503) // never 200 while it is in flight
				if res.Header.Get("Retry-After") == "" {
					t.Error("no Retry-After")
				}
				wg.Wait()
				wantStatus(t, s.send(t, b, shopEvent{ID: "1"}), 200)
				wantCount(t, store, "1", 1)
			})
		})
	}
}

func TestShutdown(t *testing.T) {
	t.Run("it waits for work, and new deliveries are sent away", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s, store := newShop(), consumertest.NewStore()
			r := newReceiver(t, webhook.Config{Verifier: s, Processor: billing(t, consumer.Config[tx]{Store: store, Handle: slow(time.Minute)})})
			wantStatus(t, s.send(t, r, shopEvent{ID: "1"}), 503) // the handler goes on
			var wg sync.WaitGroup
			for range 2 { // it may be called twice
				wg.Go(func() {
					if err := r.Shutdown(t.Context()); err != nil {
						t.Error(err)
					}
				})
			}
			synctest.Wait()
			wantStatus(t, s.send(t, r, shopEvent{ID: "2"}), 503)
			wg.Wait()
			wantCount(t, store, "1", 1)
			wantCount(t, store, "2", 0)
		})
	})
	t.Run("when its time is up, handlers are cancelled and roll back", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s, store := newShop(), consumertest.NewStore()
			var cause error
			r := newReceiver(t, webhook.Config{Verifier: s, Processor: billing(t, consumer.Config[tx]{Store: store, Handle: func(ctx context.Context, tx tx, m *consumer.Message) error {
				err := slow(time.Hour)(ctx, tx, m)
				cause = context.Cause(ctx)
				return err
			}})})
			wantStatus(t, s.send(t, r, shopEvent{ID: "1"}), 503)
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			if err := r.Shutdown(ctx); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("Shutdown: %v", err)
			}
			synctest.Wait()
			if !errors.Is(cause, webhook.ErrShutdown) {
				t.Errorf("the handler's context ended with %v", cause)
			}
			wantCount(t, store, "1", 0)
			if store.Database().Open() != 0 {
				t.Error("a transaction is open")
			}
		})
	})
}
