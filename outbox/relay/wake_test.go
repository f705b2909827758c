package relay_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/txonce/txonce/outbox/driver"
	"github.com/txonce/txonce/outbox/outboxtest"
	"github.com/txonce/txonce/outbox/relay"
)

// looks counts the Leases of an outbox's sessions, separately for those with Want.Notified and those without.
type looks struct {
	driver.Queue
	wakes             <-chan struct{} // instead of the session's; nil: its own
	told, everywhere  atomic.Int64
	whenTold, foundBy atomic.Int64 // messages found by either
}

type lookingSession struct {
	driver.Session
	looks *looks
}

func (l *looks) Open(ctx context.Context, opts driver.SessionOptions) (driver.Session, error) {
	s, err := l.Queue.Open(ctx, opts)
	return &lookingSession{s, l}, err
}

func (s *lookingSession) Wake() <-chan struct{} {
	if s.looks.wakes != nil {
		return s.looks.wakes
	}
	return s.Session.(driver.Waker).Wake()
}

func (s *lookingSession) Lease(ctx context.Context, want driver.Want) ([]driver.Leased, error) {
	if want.Notified && s.looks.wakes != nil {
		s.looks.told.Add(1)
		return nil, nil // these wake-ups are about nothing
	}
	msgs, err := s.Session.Lease(ctx, want)
	if want.Notified {
		s.looks.told.Add(1)
		s.looks.whenTold.Add(int64(len(msgs)))
	} else {
		s.looks.everywhere.Add(1)
		s.looks.foundBy.Add(int64(len(msgs)))
	}
	return msgs, err
}

// A poll of all shards costs the database more than a poll of the shards that a commit has named. With wake-ups, polls
// of all shards become as rare as in an idle outbox, and messages are still published at once.
func TestRelayPollsShardsOfNotifications(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory, broker := outboxtest.NewMemory(), new(outboxtest.FakePublisher)
		queue := &looks{Queue: memory}
		_, stop := start(t, relay.Config{Queue: queue, Publisher: broker})
		const n = 1000
		<-time.After(relay.DefaultPollMin / 3) // polls come at multiples of it: never at the moment of a commit
		for i := range n {
			<-time.After(10 * time.Millisecond)
			enqueueIDs(t, memory, fmt.Sprint("a-", i))
			synctest.Wait()
			if got := len(broker.Published()); got != i+1 {
				t.Fatalf("%d messages are published, want %d at once", got, i+1)
			}
		}
		if told, everywhere := queue.whenTold.Load(), queue.everywhere.Load(); told < n-10 || everywhere > 30 {
			t.Errorf("%d messages of %d were found by wake-ups; %d looks everywhere in 10 s, want at most 30", told, n,
				everywhere)
		}
		stop()
	})
}

// Polls find unannounced messages, however many wake-ups come, and whatever these are about.
func TestRelayPollsBeneathWakeUps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory, broker := outboxtest.NewMemory(), new(outboxtest.FakePublisher)
		wakes := make(chan struct{}, 1)
		queue := &looks{Queue: memory, wakes: wakes}
		_, stop := start(t, relay.Config{Queue: queue, Publisher: broker})
		wake := func() {
			for range 3000 {
				<-time.After(time.Millisecond)
				select {
				case wakes <- struct{}{}:
				default:
				}
			}
		}
		wake()
		enqueueIDs(t, memory, "a1")
		wake()
		if got := arrived(broker); len(got) != 1 || queue.told.Load() < 1000 {
			t.Errorf("published %v after %d looks where wake-ups told of messages: want a1", got, queue.told.Load())
		}
		stop()
	})
}
