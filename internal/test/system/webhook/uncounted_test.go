package webhook_test

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/txonce/txonce/adapters/webhook"
	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/consumer/consumertest"
)

// TestShutdownIsNoFailure: an event that is older than GiveUpAfter is parked after one failure of its handler. The end
// of the process is no failure of the handler: a sender that delivers again must find the event new.
func TestShutdownIsNoFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, store := newShop(), consumertest.NewStore()
		c := billing(t, consumer.Config[tx]{Store: store, Handle: func(ctx context.Context, tx tx, m *consumer.Message) error {
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-time.After(5 * time.Second):
				return tx.Add(m.ID)
			}
		}})
		r, err := webhook.New(webhook.Config{Verifier: s, Processor: c})
		if err != nil {
			t.Fatal(err)
		}
		old := shopEvent{ID: "old", Type: "paid", Created: time.Now().Add(-2 * time.Hour)}
		got := make(chan *http.Response, 1)
		go func() { got <- s.send(t, r, old) }()
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := r.Shutdown(ctx); err == nil {
			t.Error("Shutdown did not end the handler")
		}
		res := <-got
		synctest.Wait()
		t.Logf("status %d", res.StatusCode)
		if found := letters(t, c); len(found) != 0 {
			t.Errorf("parked: %v %v", found[0].Cause, found[0].Error)
		}
		if res.StatusCode == http.StatusOK {
			t.Error("200 for an event whose handler was cancelled by Shutdown")
		}
	})
}

// TestEventOfTheFuture: an event with a creation time ahead of all clocks must not stop its neighbours in the delivery,
// nor later ones.
func TestEventOfTheFuture(t *testing.T) {
	s, pool := newShop(), postgres(t)
	c := pgConsumer(t, pgStore(t, pool), insert)
	r := newReceiver(t, webhook.Config{Verifier: s, Processor: c})
	for _, ahead := range []time.Duration{time.Minute, 20 * time.Minute, 48 * time.Hour, 1000 * 24 * time.Hour} {
		id := ahead.String()
		res := s.send(t, r, shopEvent{ID: "before" + id, Type: "paid", Created: time.Now()},
			shopEvent{ID: id, Type: "paid", Created: time.Now().Add(ahead)},
			shopEvent{ID: "behind" + id, Type: "paid", Created: time.Now()})
		t.Logf("%v: %d", ahead, res.StatusCode)
		began := time.Now()
		next := s.send(t, r, shopEvent{ID: "later" + id, Type: "paid", Created: time.Now()})
		if next.StatusCode != 200 || time.Since(began) > time.Second {
			t.Errorf("%v: a later event: %d after %v", ahead, next.StatusCode, time.Since(began))
		}
		for _, neighbour := range []string{"before", "behind", "later"} {
			if n := query(t, pool, "SELECT count(*) FROM effects WHERE id = $1", neighbour+id); n != 1 {
				t.Errorf("%v: %d effects of %s", ahead, n, neighbour)
			}
		}
	}
	for _, l := range pgLetters(t, c) {
		t.Logf("%s %s %s", l.Message.ID, l.Cause, l.Error)
	}
}

// TestHangUpIsNoFailure: the same for a sender that hangs up, at each moment.
func TestHangUpIsNoFailure(t *testing.T) {
	for _, after := range []time.Duration{0, time.Nanosecond, time.Millisecond, time.Second, 4 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			s, store := newShop(), consumertest.NewStore()
			c := billing(t, consumer.Config[tx]{Store: store, Handle: func(ctx context.Context, tx tx, m *consumer.Message) error {
				select {
				case <-ctx.Done():
					return errors.Join(errors.New("cancelled"), ctx.Err())
				case <-time.After(2 * time.Second):
					return tx.Add(m.ID)
				}
			}})
			r := newReceiver(t, webhook.Config{Verifier: s, Processor: c})
			old := shopEvent{ID: "old", Type: "paid", Created: time.Now().Add(-2 * time.Hour)}
			ctx, cancel := context.WithTimeout(t.Context(), after)
			defer cancel()
			do(r, s.request(ctx, old))
			synctest.Wait()
			if found := letters(t, c); len(found) != 0 {
				t.Errorf("%v: parked: %v %v", after, found[0].Cause, found[0].Error)
			}
			<-time.After(5 * time.Second)
			wantStatus(t, s.send(t, r, old), 200)
			wantCount(t, store, "old", 1)
		})
	}
}
