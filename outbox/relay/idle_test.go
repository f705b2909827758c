package relay_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/txonce/txonce/outbox/driver"
	"github.com/txonce/txonce/outbox/outboxtest"
	"github.com/txonce/txonce/outbox/relay"
)

// crowd is an idle outbox whose Hold says that there are this many relays.
type crowd struct {
	faulty
	relays    int
	announced bool
}

func (c *crowd) Open(ctx context.Context, opts driver.SessionOptions) (driver.Session, error) {
	s, err := c.faulty.Open(ctx, opts)
	return &crowdSession{s.(*faultySession), c}, err
}

type crowdSession struct {
	*faultySession
	crowd *crowd
}

func (s *crowdSession) Renew(ctx context.Context) (driver.Hold, error) {
	hold, err := s.faultySession.Renew(ctx)
	hold.Relays, hold.Announced = s.crowd.relays, s.crowd.announced
	hold.Shards, hold.TotalShards = 64/s.crowd.relays, 64
	return hold, err
}

// An idle relay asks the database twice a second, and renews every five seconds. Sixteen relays that are notified of
// all commits ask for messages and maintenance no more often than three do. Relays that are not notified poll every
// PollMax, however many there are.
func TestRelayIdle(t *testing.T) {
	const minutes = 10
	calls := func(relays int, announced bool) (polls, all int) {
		synctest.Test(t, func(t *testing.T) {
			q := &crowd{relays: relays, announced: announced}
			q.Queue = outboxtest.NewMemory()
			_, stop := start(t, relay.Config{Queue: q, Publisher: &outboxtest.FakePublisher{}})
			<-time.After(minutes * time.Minute)
			polls, all = q.count("lease"), q.total()
			stop()
		})
		return polls, all
	}
	const seconds = minutes * 60
	if _, all := calls(1, true); all > seconds*23/10 {
		t.Errorf("a lone relay made %d calls in %d s, want 2.2 a second", all, seconds)
	}
	_, few := calls(3, true)
	if polls, many := calls(16, true); 16*many > 3*few*12/10 || 16*polls > 3*seconds*11/10 {
		t.Errorf("each of 16 relays made %d calls, and each of 3 made %d: want no more in all", many, few)
	}
	if polls, _ := calls(100, true); polls < seconds/7 {
		t.Errorf("each of 100 relays has polled %d times in %d s, want once in 6", polls, seconds)
	}
	if polls, _ := calls(16, false); polls < seconds {
		t.Errorf("each of 16 relays that are not notified has polled %d times in %d s, want once in PollMax", polls,
			seconds)
	}
}

// Three relays cannot hold equal numbers of 64 shards. They come to rest nevertheless: each renews every five seconds.
func TestRelaysWithUnequalSharesComeToRest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const relays, minutes = 3, 10
		q := &faulty{Queue: outboxtest.NewMemory()}
		var stops []func()
		for range relays {
			_, stop := start(t, relay.Config{Queue: q, Publisher: &outboxtest.FakePublisher{}})
			stops = append(stops, stop)
			<-time.After(time.Second)
		}
		<-time.After(time.Minute)
		before := q.count("renew")
		<-time.After(minutes * time.Minute)
		if n := q.count("renew") - before; n > relays*minutes*13 {
			t.Errorf("%d relays have renewed %d times in %d minutes, want 12 times a minute each", relays, n, minutes)
		}
		for _, stop := range stops {
			stop()
		}
	})
}

// Relays that began together do not look for delayed messages together: all of them look three times a second, at
// different times. So the next look comes within a second on average, and not within the six seconds between two looks
// of one relay.
func TestRelaysLookForDelayedMessagesAtDifferentTimes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const relays, minutes = 16, 10
		q := &crowd{relays: relays, announced: true}
		q.Queue = outboxtest.NewMemory()
		var mu sync.Mutex
		last, wait := time.Now(), 0.0 // of a message that may be due at any time
		q.set(func(op string) error {
			mu.Lock()
			defer mu.Unlock()
			if op == "maintain" {
				gap := time.Since(last).Minutes()
				last, wait = time.Now(), wait+gap*gap/2/minutes
			}
			return nil
		})
		var stops []func()
		for range relays {
			_, stop := start(t, relay.Config{Queue: q, Publisher: &outboxtest.FakePublisher{}})
			stops = append(stops, stop)
		}
		<-time.After(minutes * time.Minute)
		for _, stop := range stops {
			stop()
		}
		if average := time.Duration(wait * float64(time.Minute)); q.count("maintain") < 1000 || average > time.Second {
			t.Errorf("%d looks; the next one came after %v on average, want less than a second", q.count("maintain"),
				average)
		}
	})
}
