package relay_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/txonce/txonce/observe"
	"github.com/txonce/txonce/outbox/driver"
	"github.com/txonce/txonce/outbox/outboxtest"
	"github.com/txonce/txonce/outbox/relay"
)

// The answers to Settle get lost until the lease is lost too. The new session has nothing to settle, so nothing but its
// start can show that the database works again.
func TestRelayResumesWithANewSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory := outboxtest.NewMemory()
		q := &faulty{Queue: memory}
		var paused atomic.Int64
		_, stop := start(t, relay.Config{Queue: q, Publisher: &outboxtest.FakePublisher{}, Trace: &relay.Trace{
			Paused:  func(context.Context, observe.Pause) { paused.Add(1) },
			Resumed: func(context.Context, observe.Pause) { paused.Add(-1) },
		}})
		lost := errors.New("the answer is lost")
		q.failing(lost, "settled")
		enqueueIDs(t, memory, "a1")
		<-time.After(time.Minute)
		if n := paused.Load(); n != 1 {
			t.Fatalf("%d pauses while no answer arrives, want one", n)
		}
		q.set(func(op string) error {
			switch op {
			case "renew":
				return driver.ErrLeaseLost
			case "settled": // otherwise a Settle before the end of the lease ends the outage
				return lost
			}
			return nil
		})
		<-time.After(10 * time.Second)
		q.failing(nil)
		<-time.After(time.Hour)
		if got, n := stats(t, memory), paused.Load(); got != "0 pending, 0 parked, 0 waiting" || n != 0 {
			t.Errorf("%s, and %d pauses go on, want none", got, n)
		}
		stop()
	})
}
