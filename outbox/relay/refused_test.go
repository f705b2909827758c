package relay_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/txonce/txonce/observe"
	"github.com/txonce/txonce/outbox"
	"github.com/txonce/txonce/outbox/driver"
	"github.com/txonce/txonce/outbox/outboxtest"
	"github.com/txonce/txonce/outbox/relay"
)

// refusing is a Queue whose database refuses some outcomes.
type refusingQueue struct {
	driver.Queue
	refuses func(o driver.Outcome) bool
}

func (q refusingQueue) Open(ctx context.Context, opts driver.SessionOptions) (driver.Session, error) {
	s, err := q.Queue.Open(ctx, opts)
	return refusingSession{s, q.refuses}, err
}

type refusingSession struct {
	driver.Session
	refuses func(o driver.Outcome) bool
}

func (s refusingSession) Settle(ctx context.Context, outcomes []driver.Outcome) error {
	if slices.ContainsFunc(outcomes, s.refuses) {
		return fmt.Errorf("%w: value too long", driver.ErrRefused)
	}
	return s.Session.Settle(ctx, outcomes)
}

// The database refuses to store what follows from one message. The others of its batch are settled, so that they are
// published once. The message is parked, or waits if it cannot be parked.
func TestRelaySetsAsideWhatTheDatabaseRefuses(t *testing.T) {
	for _, test := range []struct {
		name    string
		refuses func(o driver.Outcome) bool
		want    string
	}{
		{"to hold its key back", func(o driver.Outcome) bool {
			return o.ID == "b1" && (o.Verdict == driver.Deferred ||
				o.Verdict == driver.Parked && o.ParkPolicy != outbox.SkipMessage)
		}, "0 pending, 1 parked, 0 waiting"},
		{
			"to park it", func(o driver.Outcome) bool { return o.ID == "b1" && o.Verdict == driver.Parked },
			"1 pending, 0 parked, 0 waiting",
		},
		{"to record that it was published", func(o driver.Outcome) bool { return o.ID == "b1" && o.Verdict == driver.Sent }, "1 pending, 0 parked, 0 waiting"},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				memory, broker := outboxtest.NewMemory(), new(outboxtest.FakePublisher)
				enqueueIDs(t, memory, "a1", "b1", "c1", "d1", "e1")
				calls := map[string]int{}
				publisher := publisherFunc(func(ctx context.Context, msgs []outbox.Message) []error {
					errs := broker.Publish(ctx, msgs)
					if errs == nil {
						errs = make([]error, len(msgs))
					}
					for i := range msgs {
						if calls[msgs[i].ID]++; msgs[i].ID == "b1" && !strings.Contains(test.name, "published") {
							errs[i] = errRefused
						}
					}
					return errs
				})
				_, stop := start(t, relay.Config{
					Queue: refusingQueue{memory, test.refuses}, Publisher: publisher,
					MaxAttempts: 1,
				})
				<-time.After(30 * time.Second)
				if got := stats(t, memory); got != test.want {
					t.Errorf("%s, want %s", got, test.want)
				}
				for id, n := range calls {
					if n != 1 {
						t.Errorf("%s was published %d times, want once", id, n)
					}
				}
				stop()
			})
		})
	}
}

// lostHalf is a session that refuses a whole batch, settles its first half, and has lost its lease then.
type lostHalf struct {
	driver.Queue
	lost *atomic.Bool
}

func (q lostHalf) Open(ctx context.Context, opts driver.SessionOptions) (driver.Session, error) {
	s, err := q.Queue.Open(ctx, opts)
	return &lostHalfSession{Session: s, lost: q.lost}, err
}

type lostHalfSession struct {
	driver.Session
	lost    *atomic.Bool
	settles int
}

func (s *lostHalfSession) Settle(ctx context.Context, outcomes []driver.Outcome) error {
	if s.lost.Load() {
		return s.Session.Settle(ctx, outcomes)
	}
	switch s.settles++; s.settles {
	case 1:
		return fmt.Errorf("%w: value too long", driver.ErrRefused)
	case 2:
		return s.Session.Settle(ctx, outcomes)
	}
	s.lost.Store(true)
	return driver.ErrLeaseLost
}

// What was settled before the lease was lost is reported: its log lines, its trace and its place in the park budget.
func TestRelayReportsTheHalfThatWasSettled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory, log := outboxtest.NewMemory(), new(lines)
		enqueueIDs(t, memory, "a1", "b1", "c1", "d1")
		refuses := publisherFunc(func(_ context.Context, msgs []outbox.Message) []error {
			errs := make([]error, len(msgs))
			for i := range errs {
				errs[i] = outbox.Permanent(errRefused)
			}
			return errs
		})
		var traced atomic.Int64
		_, stop := start(t, relay.Config{
			Queue: lostHalf{memory, new(atomic.Bool)}, Publisher: refuses, Logger: log.logger(),
			ParkLimit: relay.ParkLimit{Burst: 4, PerMinute: 1},
			Trace:     settled(observe.Parked, func(relay.Settlement) { traced.Add(1) }),
		})
		<-time.After(10 * time.Second)
		if log.with("message parked") != 4 || traced.Load() != 4 ||
			stats(t, memory) != "0 pending, 4 parked, 0 waiting" {
			t.Errorf("want 4 lines and 4 settlements of 4 parked messages, got %d; %s:\n%s", traced.Load(),
				stats(t, memory), log)
		}
		enqueueIDs(t, memory, "e1", "f1")
		<-time.After(10 * time.Second)
		if got := stats(t, memory); got != "2 pending, 4 parked, 0 waiting" {
			t.Errorf("%s: want the budget of 4 to be spent", got)
		}
		stop()
	})
}
