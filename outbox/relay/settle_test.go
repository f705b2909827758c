package relay_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/txonce/txonce/observe"
	"github.com/txonce/txonce/outbox/driver"
	"github.com/txonce/txonce/outbox/outboxtest"
	"github.com/txonce/txonce/outbox/relay"
)

// While Settle fails nothing is published again: the outcomes are kept, and settled when it works.
func TestRelaySettlesAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory, log := outboxtest.NewMemory(), new(lines)
		queue, broker := &faulty{Queue: memory}, new(outboxtest.FakePublisher)
		queue.failing(errFault, "settle")
		var paused, resumed atomic.Int64
		hook := func(n *atomic.Int64) func(context.Context, observe.Pause) {
			return func(_ context.Context, p observe.Pause) {
				if n.Add(1); !errors.Is(p.Err, errFault) || p.Cause != observe.CauseDatabase || p.Topic != "" {
					t.Errorf("told %+v", p)
				}
			}
		}
		trace := &relay.Trace{Paused: hook(&paused), Resumed: hook(&resumed)}
		enqueueIDs(t, memory, "a1", "a2")
		_, stop := start(t, relay.Config{Queue: queue, Publisher: broker, Logger: log.logger(), Trace: trace})
		<-time.After(2 * time.Minute)
		queue.failing(nil)
		<-time.After(5 * time.Second)
		if diff := cmp.Diff([]string{"a1", "a2"}, arrived(broker)); diff != "" {
			t.Error(diff)
		}
		if got := stats(t, memory); got != "0 pending, 0 parked, 0 waiting" {
			t.Error(got)
		}
		if paused.Load() != 1 || resumed.Load() != 1 {
			t.Errorf("paused %d times, resumed %d times", paused.Load(), resumed.Load())
		}
		if log.with("database fails") != 1 || log.with("still waiting for the database") != 1 ||
			log.with("works again") != 1 {
			t.Errorf("want a line at the start, one after a minute and one at the end:\n%s", log)
		}
		stop()
	})
}

// The answer of Settle is lost. Settle is called again, and the attempt still counts once.
func TestRelaySettleOfUnknownOutcome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory := outboxtest.NewMemory()
		queue := &faulty{Queue: memory}
		var odd atomic.Int64
		queue.set(func(op string) error {
			if op == "settled" && odd.Add(1)%2 == 1 {
				return errFault
			}
			return nil
		})
		p := &recorder{Publisher: refusing("a1", errRefused, -2)}
		enqueueIDs(t, memory, "a1", "b1")
		_, stop := start(t, relay.Config{Queue: queue, Publisher: p, MaxAttempts: 4, Backoff: fixed(time.Second)})
		<-time.After(time.Minute)
		if diff := cmp.Diff([][]string{{"a1", "b1"}, {"a1"}, {"a1"}, {"a1"}}, p.Calls()); diff != "" {
			t.Error(diff)
		}
		if got := stats(t, memory); got != "0 pending, 1 parked, 0 waiting" {
			t.Error(got)
		}
		stop()
	})
}

// The database is away for a minute, in the middle of a batch. Run waits, logs the outage once, and publishes only that
// batch again.
func TestRelayDatabaseOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory, log := outboxtest.NewMemory(), new(lines)
		queue, broker := &faulty{Queue: memory}, new(outboxtest.FakePublisher)
		all := []string{"open", "renew", "lease", "settle", "maintain"}
		_, stop := start(t, relay.Config{
			Queue: queue, Publisher: broker, LeaseTTL: 10 * time.Second,
			Logger: log.logger(),
		})
		enqueueIDs(t, memory, "a1", "b1")
		synctest.Wait()
		queue.failing(errFault, "settle")
		enqueueIDs(t, memory, "a2")
		synctest.Wait()
		queue.failing(errFault, all...)
		enqueueIDs(t, memory, "c1")
		before := queue.total()
		<-time.After(time.Minute)
		if n := queue.total() - before; n < 20 || n > 300 {
			t.Errorf("%d calls in a minute of outage", n)
		}
		if n := log.with("database fails"); n < 1 || n > len(all) || log.with("lease lost") != 1 {
			t.Errorf("want one line for each operation that failed:\n%s", log)
		}
		queue.failing(nil)
		<-time.After(5 * time.Second)
		got := arrived(broker)
		slices.Sort(got)
		if diff := cmp.Diff([]string{"a1", "a2", "a2", "b1", "c1"}, got); diff != "" {
			t.Error(diff)
		}
		stop()
	})
}

// Lease and Maintain always fail, for example because of a missing privilege. The hold is renewed, and each failure is
// logged once.
func TestRelayOneOperationFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory, log := outboxtest.NewMemory(), new(lines)
		queue := &faulty{Queue: memory}
		queue.failing(errFault, "lease", "maintain")
		_, stop := start(t, relay.Config{Queue: queue, Publisher: new(outboxtest.FakePublisher), Logger: log.logger()})
		<-time.After(time.Hour)
		if n := queue.count("lease"); n > 3600 {
			t.Errorf("%d leases tried in an hour", n)
		}
		if log.with("database fails") != 2 || log.with("lease lost") != 0 {
			t.Errorf("want a line each:\n%s", log)
		}
		stop()
	})
}

func TestRelayMissingSchema(t *testing.T) {
	for _, op := range []string{"open", "renew"} {
		synctest.Test(t, func(t *testing.T) {
			memory, log := outboxtest.NewMemory(), new(lines)
			queue := &faulty{Queue: memory}
			queue.failing(fmt.Errorf("no table: %w", driver.ErrSchema), op)
			r := newRelay(t, relay.Config{Queue: queue, Publisher: new(outboxtest.FakePublisher), Logger: log.logger()})
			if err := r.Run(t.Context()); !errors.Is(err, driver.ErrSchema) {
				t.Errorf("Run = %v, want ErrSchema", err)
			}
			if _, err := r.RunOnce(t.Context()); !errors.Is(err, driver.ErrSchema) {
				t.Errorf("RunOnce = %v, want ErrSchema", err)
			}
		})
	}
	synctest.Test(t, func(t *testing.T) { // after it has run, this is an outage: perhaps a backup is being restored
		queue, broker := &faulty{Queue: outboxtest.NewMemory()}, new(outboxtest.FakePublisher)
		_, stop := start(t, relay.Config{Queue: queue, Publisher: broker})
		queue.failing(driver.ErrSchema, "open", "renew", "lease", "settle", "maintain")
		<-time.After(2 * time.Minute)
		queue.failing(nil)
		<-time.After(5 * time.Second)
		enqueueIDs(t, queue.Queue.(*outboxtest.Memory), "a1")
		synctest.Wait()
		if diff := cmp.Diff([]string{"a1"}, arrived(broker)); diff != "" {
			t.Error(diff)
		}
		stop()
	})
}
