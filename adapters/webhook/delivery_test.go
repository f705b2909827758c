package webhook_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/txonce/txonce/adapters/webhook"
	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/consumer/consumertest"
	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/observe"
)

// What a sender sees of one event, from delivery to delivery.
func TestDeliveries(t *testing.T) {
	errHandler := errors.New("not yet")
	t.Run("case 65: the response was lost", func(t *testing.T) {
		s, store, hooks := newShop(), consumertest.NewStore(), &traced{}
		r := newReceiver(t, webhook.Config{
			Verifier: s, Processor: billing(t, consumer.Config[tx]{Store: store}),
			Trace: hooks.trace(),
		})
		for range 2 {
			if n := s.status(t, r, shopEvent{ID: "1"}); n != 200 {
				t.Errorf("status %d", n)
			}
		}
		wantCount(t, store, "1", 1)
		if want := "accepted 1, answered 200, duplicate 1, answered 200"; hooks.String() != want {
			t.Errorf("hooks %q, want %q", hooks, want)
		}
	})
	t.Run("case 64: the handler fails, then not", func(t *testing.T) {
		s, store, fail := newShop(), consumertest.NewStore(), true
		r := newReceiver(t, webhook.Config{Verifier: s, Processor: billing(t, consumer.Config[tx]{Store: store, Handle: func(ctx context.Context, tx tx, m *consumer.Message) error {
			if err := count(ctx, tx, m); fail || err != nil {
				return errors.Join(errHandler, err)
			}
			return nil
		}})})
		wantStatus(t, s.send(t, r, shopEvent{ID: "1", Created: time.Now()}), 503)
		wantCount(t, store, "1", 0)
		fail = false
		wantStatus(t, s.send(t, r, shopEvent{ID: "1", Created: time.Now()}), 200)
		wantCount(t, store, "1", 1)
	})
	t.Run("case 66: a permanent failure is parked and acknowledged", func(t *testing.T) {
		s, store, hooks := newShop(), consumertest.NewStore(), &traced{}
		c := billing(t, consumer.Config[tx]{Store: store, Handle: func(context.Context, tx, *consumer.Message) error { return consumer.Permanent(errHandler) }})
		r := newReceiver(t, webhook.Config{Verifier: s, Processor: c, Trace: hooks.trace()})
		wantStatus(t, s.send(t, r, shopEvent{ID: "1"}), 200)
		if found := letters(t, c); len(found) != 1 || hooks.String() != "parked 1, answered 200" {
			t.Errorf("letters %v, hooks %q", found, hooks)
		}
	})
	t.Run("case 67: a poison item does not block its batch", func(t *testing.T) {
		s, store := newShop(), consumertest.NewStore()
		c := billing(t, consumer.Config[tx]{Store: store, Handle: func(ctx context.Context, tx tx, m *consumer.Message) error {
			if m.ID == "2" {
				return errHandler
			}
			return count(ctx, tx, m)
		}})
		r := newReceiver(t, webhook.Config{Verifier: s, Processor: c})
		batch := []shopEvent{
			{ID: "1", Created: time.Now()},
			{ID: "2", Created: time.Now()},
			{ID: "3", Created: time.Now()},
		}
		wantStatus(t, s.send(t, r, batch[0]), 200) // it is partly seen before
		wantStatus(t, s.send(t, r, batch...), 503)
		for i := range batch {
			batch[i].Created = time.Now().Add(-2 * time.Hour) // the sender gives up soon
		}
		wantStatus(t, s.send(t, r, batch...), 200)
		for id, want := range map[string]int{"1": 1, "2": 0, "3": 1} {
			wantCount(t, store, id, want)
		}
		if found := letters(t, c); len(found) != 1 || found[0].Message.ID != "2" {
			t.Errorf("letters %v, want one of 2", found)
		}
	})
	t.Run("case 68: updated before created", func(t *testing.T) {
		s, store := newShop(), consumertest.NewStore()
		var order []string
		r := newReceiver(t, webhook.Config{Verifier: s, Processor: billing(t, consumer.Config[tx]{Store: store, Handle: func(_ context.Context, tx tx, m *consumer.Message) error {
			order = append(order, m.Topic)
			return tx.Add(m.ID)
		}})})
		wantStatus(t, s.send(t, r, shopEvent{ID: "2", Type: "updated"}), 200)
		wantStatus(t, s.send(t, r, shopEvent{ID: "1", Type: "created"}), 200)
		if diff := gocmp.Diff([]string{"updated", "created"}, order); diff != "" {
			t.Error(diff)
		}
	})
	t.Run("case 70: an unknown type is claimed and acknowledged", func(t *testing.T) {
		s, store := newShop(), consumertest.NewStore()
		r := newReceiver(t, webhook.Config{Verifier: s, Processor: billing(t, consumer.Config[tx]{Store: store, Handle: webhook.ByTopic(map[string]consumer.Handler[tx]{"paid": count})})})
		wantStatus(t, s.send(t, r, shopEvent{ID: "1", Type: "paid"}, shopEvent{ID: "2", Type: "refunded"}), 200)
		wantCount(t, store, "1", 1)
		wantCount(t, store, "2", 0)
		if _, found, err := store.Lookup(t.Context(),
			dedup.Key{Consumer: "billing", Tenant: "shop/live", ID: "2"}); !found || err != nil {
			t.Errorf("the unknown event is not claimed: %v", err)
		}
	})
	t.Run("case 72: long ids are never cut, and impossible ones are parked", func(t *testing.T) {
		s, store := newShop(), consumertest.NewStore()
		c := billing(t, consumer.Config[tx]{Store: store})
		r := newReceiver(t, webhook.Config{Verifier: s, Processor: c})
		long := strings.Repeat("x", 300)
		for _, id := range []string{long + "1", long + "2", "nul\x00", strings.Repeat("x", dedup.MaxID+1), ""} {
			wantStatus(t, s.send(t, r, shopEvent{ID: id}), 200)
		}
		wantCount(t, store, long+"1", 1)
		wantCount(t, store, long+"2", 1)
		if found := letters(t, c); len(found) != 3 || found[0].Cause != observe.CauseNoKey {
			t.Errorf("letters %v, want 3 without a key", found)
		}
	})
	t.Run("ByTopic refuses a nil handler", func(t *testing.T) {
		defer func() {
			if v := recover(); v == nil {
				t.Error("no panic")
			}
		}()
		webhook.ByTopic(map[string]consumer.Handler[tx]{"paid": nil})
	})
}

// A sender's retries come within seconds at first, and each restart of the database fails some of them. Only the age of
// an event says that the sender is about to give up.
func TestOutageOfTenMinutes(t *testing.T) {
	t.Run("E20: the database is away for 10 minutes", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s, store := newShop(), consumertest.NewStore()
			c := billing(t, consumer.Config[tx]{Store: store})
			r := newReceiver(t, webhook.Config{Verifier: s, Processor: c})
			store.Database().Stop()
			var senders sync.WaitGroup
			for i := range 20 {
				senders.Go(func() {
					e := shopEvent{ID: fmt.Sprint(i), Created: time.Now()}
					<-time.After(time.Duration(i) * 45 * time.Second) // some come after the outage
					if n := (sender{shop: s, to: r}).deliver(t, e, time.Second, 30); n == 0 {
						t.Errorf("event %s is lost", e.ID)
					}
				})
			}
			<-time.After(10 * time.Minute)
			store.Database().Start()
			senders.Wait()
			for i := range 20 {
				wantCount(t, store, fmt.Sprint(i), 1)
			}
			if found := letters(t, c); len(found) != 0 {
				t.Errorf("parked during an outage: %v", found)
			}
		})
	})
	t.Run("E20: a service that the handler calls is away for 10 minutes", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s, store, from := newShop(), consumertest.NewStore(), time.Now()
			c := billing(t, consumer.Config[tx]{Store: store, Handle: func(ctx context.Context, tx tx, m *consumer.Message) error {
				if time.Since(from) < 10*time.Minute {
					return errors.New("the service is away")
				}
				return count(ctx, tx, m)
			}})
			r := newReceiver(t, webhook.Config{Verifier: s, Processor: c})
			if n := (sender{shop: s, to: r}).deliver(t, shopEvent{ID: "1", Created: from}, time.Second, 30); n < 8 {
				t.Errorf("accepted at delivery %d", n)
			}
			wantCount(t, store, "1", 1)
			if found := letters(t, c); len(found) != 0 {
				t.Errorf("parked during an outage: %v", found)
			}
		})
	})
	t.Run("case 66: poison is parked before the sender gives up", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s, store, failures := newShop(), consumertest.NewStore(), 0
			c := billing(t, consumer.Config[tx]{Store: store, Handle: func(context.Context, tx, *consumer.Message) error {
				failures++
				return errors.New("poison")
			}})
			r := newReceiver(t, webhook.Config{Verifier: s, Processor: c})
			created := time.Now()
			// 1 + 2 + 4 + … minutes: 4 hours
			n := (sender{shop: s, to: r}).deliver(t, shopEvent{ID: "1", Created: created}, time.Minute, 9)
			found := letters(t, c)
			if len(found) != 1 || found[0].Cause != observe.CauseExhausted || n == 0 {
				t.Fatalf("delivery %d, letters %v: want it parked and acknowledged", n, found)
			}
			if age := found[0].First.Sub(created); age < s.source.GiveUpAfter || age > 2*s.source.GiveUpAfter ||
				failures != n {
				t.Errorf("parked after %v, at failure %d of %d deliveries", age, failures, n)
			}
		})
	})
	t.Run("the handler fails after the sender has given up", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s, store := newShop(), consumertest.NewStore()
			s.source.GiveUpAfter = 30 * time.Second
			c := billing(t, consumer.Config[tx]{Store: store, Handle: func(context.Context, tx, *consumer.Message) error {
				<-time.After(2 * time.Minute)
				return errors.New("the bank does not answer")
			}})
			r := newReceiver(t, webhook.Config{Verifier: s, Processor: c})
			created := time.Now()
			for range 4 { // the first finds a young event, the last finds it in flight
				wantStatus(t, s.send(t, r, shopEvent{ID: "1", Created: created}), 503)
				<-time.After(10 * time.Second)
			}
			if err := r.Shutdown(t.Context()); err != nil { // waits for the handler
				t.Error(err)
			}
			if found := letters(t, c); len(found) != 1 || found[0].Cause != observe.CauseExhausted {
				t.Errorf("letters %v: the event is neither processed nor parked", found)
			}
		})
	})
	t.Run("E20: from GiveUpAfter on", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := newShop()
			var giveUpAt []time.Time
			r := newReceiver(t, webhook.Config{Verifier: s, Processor: answers(func(_ context.Context, msgs []*consumer.Message) []error {
				for _, m := range msgs {
					giveUpAt = append(giveUpAt, m.GiveUpAt)
				}
				return make([]error, len(msgs))
			})})
			now := time.Now()
			s.send(t, r, shopEvent{ID: "1", Created: now.Add(-time.Hour)}, shopEvent{ID: "2"},
				shopEvent{ID: "3", Created: now.Add(time.Hour)})
			if diff := gocmp.Diff([]time.Time{now, {}, now.Add(2 * time.Hour)}, giveUpAt); diff != "" {
				t.Error(diff)
			}
		})
	})
}

// Each event arrives 20 times, out of order, from 16 clients that hang up at random, and handlers fail at random. Two
// consumers stand for two processes on one database.
func TestRedeliveryStorm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const events, copies, clients = 60, 20, 16
		s, first := newShop(), consumertest.NewStore()
		var receivers []*webhook.Receiver
		var lots []*consumer.Consumer[tx]
		for _, store := range []*consumertest.Store{first, consumertest.NewStoreOn(first.Database())} {
			c := billing(t, consumer.Config[tx]{Store: store, Backoff: func(int) time.Duration { return time.Millisecond }, Handle: func(ctx context.Context, tx tx, m *consumer.Message) error {
				<-time.After(time.Duration(rand.IntN(20)) * time.Millisecond)
				if err := context.Cause(ctx); err != nil {
					return err
				}
				if err := count(ctx, tx, m); err != nil {
					return err
				}
				if rand.IntN(3) == 0 {
					return errors.New("by chance")
				}
				return nil
			}})
			receivers, lots = append(receivers, newReceiver(t, webhook.Config{Verifier: s, Processor: c})),
				append(lots, c)
		}
		created := time.Now()
		jobs := make(chan shopEvent, events*copies)
		order := rand.Perm(events * copies)
		for _, n := range order {
			jobs <- shopEvent{ID: fmt.Sprint(n % events), Type: "paid", Created: created}
		}
		close(jobs)
		var wg sync.WaitGroup
		var mu sync.Mutex
		acknowledged := map[string]bool{}
		for client := range clients {
			wg.Go(func() {
				for e := range jobs {
					ctx, cancel := context.WithCancel(t.Context())
					hangUp := time.AfterFunc(time.Duration(rand.IntN(60))*time.Millisecond, cancel)
					res := do(receivers[client%2], s.request(ctx, e))
					if ctx.Err() == nil && res.StatusCode == 200 {
						mu.Lock()
						acknowledged[e.ID] = true
						mu.Unlock()
					}
					hangUp.Stop()
					cancel()
				}
			})
		}
		wg.Wait()
		for i := range events { // what is left; nothing hangs up any more
			if n := (sender{shop: s, to: receivers[i%2]}).deliver(t,
				shopEvent{ID: fmt.Sprint(i), Type: "paid", Created: created}, time.Millisecond, 100); n == 0 {
				t.Errorf("event %d is never accepted", i)
			}
		}
		for i := range events {
			wantCount(t, first, fmt.Sprint(i), 1)
		}
		if len(acknowledged) == 0 {
			t.Error("nothing was acknowledged during the storm")
		}
		for _, c := range lots {
			if found := letters(t, c); len(found) != 0 {
				t.Errorf("parked: %v", found)
			}
		}
	})
}
