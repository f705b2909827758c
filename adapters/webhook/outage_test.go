package webhook_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/txonce/txonce/adapters/webhook"
	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/consumer/consumertest"
	"github.com/txonce/txonce/outbox"
	"github.com/txonce/txonce/outbox/driver"
	"github.com/txonce/txonce/outbox/relay"
)

// sameDatabase is an outbox in the database of store: it is away when that is.
type sameDatabase struct {
	driver.Queue
	store *consumertest.Store
}

func (q sameDatabase) reachable(ctx context.Context) error {
	tx, err := q.store.Database().Begin(ctx)
	if err != nil {
		return err
	}
	return tx.Rollback()
}

func (q sameDatabase) Open(ctx context.Context, opts driver.SessionOptions) (driver.Session, error) {
	if err := q.reachable(ctx); err != nil {
		return nil, err
	}
	s, err := q.Queue.Open(ctx, opts)
	return sameDatabaseSession{s, q}, err
}

type sameDatabaseSession struct {
	driver.Session
	in sameDatabase
}

func (s sameDatabaseSession) Renew(ctx context.Context) (driver.Hold, error) {
	if err := s.in.reachable(ctx); err != nil {
		return driver.Hold{}, err
	}
	return s.Session.Renew(ctx)
}

func (s sameDatabaseSession) Lease(ctx context.Context, want driver.Want) ([]driver.Leased, error) {
	if err := s.in.reachable(ctx); err != nil {
		return nil, err
	}
	return s.Session.Lease(ctx, want)
}

func (s sameDatabaseSession) Settle(ctx context.Context, outcomes []driver.Outcome) error {
	if err := s.in.reachable(ctx); err != nil {
		return err
	}
	return s.Session.Settle(ctx, outcomes)
}

// E20: the database of the Inbox, the outbox and the consumer is away for 10 minutes. Events come before, during and
// after that. Those of the first minute are in the outbox when it begins, and one of them is in work.
func TestOutageOfTenMinutesWithAnInbox(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const events = 40
		s, store := newShop(), consumertest.NewStore()
		s.source.GiveUpAfter = 0
		out := newPending(store)
		in := newInbox(t, store, out)
		r := newReceiver(t, webhook.Config{Verifier: s, Processor: in})
		c := billing(t, consumer.Config[tx]{Store: store, Handle: slow(3 * time.Second)})
		rl := newRelay(t, relay.Config{
			Queue:      sameDatabase{out.queue, store},
			Publishers: map[string]outbox.Publisher{in.Topic(): newWorker(t, webhook.WorkerConfig{Processor: c})},
		})
		ctx, stop := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() {
			if err := rl.Run(ctx); err != nil {
				t.Error(err)
			}
		})
		running.Go(func() { // what the Inbox commits is in the queue then
			for tick := time.NewTicker(time.Second); ; {
				select {
				case <-tick.C:
					out.move(t)
				case <-ctx.Done():
					tick.Stop()
					return
				}
			}
		})
		var senders sync.WaitGroup
		for i := range events {
			senders.Go(func() {
				<-time.After(time.Duration(i) * 20 * time.Second)
				if n := (sender{shop: s, to: r}).deliver(t,
					shopEvent{ID: fmt.Sprint(i), Type: "paid", Key: fmt.Sprint("order-", i%3)}, time.Second,
					30); n == 0 {
					t.Errorf("event %d is lost", i)
				}
			})
		}
		<-time.After(time.Minute + 3*time.Second)
		if store.Database().Open() != 1 {
			t.Errorf("%d events are in work, want 1", store.Database().Open())
		}
		before := len(out.committed())
		store.Database().Stop()
		<-time.After(10 * time.Minute)
		if n := len(out.committed()); n != before {
			t.Errorf("%d events were stored during the outage", n-before)
		}
		store.Database().Start()
		senders.Wait()
		<-time.After(20 * time.Minute)
		stop()
		running.Wait()

		for i := range events {
			wantCount(t, store, fmt.Sprint(i), 1)
		}
		if found := append(letters(t, in.Consumer()), letters(t, c)...); len(found) != 0 {
			t.Errorf("parked during an outage: %v", found)
		}
		stats, err := out.queue.Stats(t.Context())
		if err != nil || stats.Pending != 0 || stats.Parked != 0 {
			t.Errorf("the outbox has %d pending and %d parked messages, %v", stats.Pending, stats.Parked, err)
		}
		if n := len(out.committed()); n != events {
			t.Errorf("%d events were stored, want %d", n, events)
		}
	})
}
