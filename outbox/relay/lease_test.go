package relay_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/txonce/txonce/internal/await"
	"github.com/txonce/txonce/outbox"
	"github.com/txonce/txonce/outbox/driver"
	"github.com/txonce/txonce/outbox/outboxtest"
	"github.com/txonce/txonce/outbox/relay"
)

// The hold cannot be renewed. Publishing ends Margin before the hold does, and goes on when there is a new hold.
func TestRelayPublishesOnlyWithinItsLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const ttl, margin = 10 * time.Second, 3 * time.Second
		memory := outboxtest.NewMemory()
		queue, broker := &faulty{Queue: memory}, slow(time.Second)
		began := time.Now()
		var begun []time.Duration
		p := publisherFunc(func(ctx context.Context, msgs []outbox.Message) []error {
			at := time.Since(began)
			begun = append(begun, at)
			deadline, _ := ctx.Deadline()
			if until := deadline.Sub(began); at < ttl && until != ttl-margin {
				t.Errorf("a call at %v may take until %v, want until %v", at, until, ttl-margin)
			}
			return broker.Publish(ctx, msgs)
		})
		for i := range 20 {
			enqueueIDs(t, memory, fmt.Sprintf("a%d", i))
		}
		var lost atomic.Int64
		trace := leaseLost(func(error) { lost.Add(1) })
		_, stop := start(t, relay.Config{Queue: queue, Publisher: p, LeaseTTL: ttl, Margin: margin, Trace: trace})
		queue.failing(errFault, "renew")
		<-time.After(30 * time.Second)
		for _, at := range begun {
			if at >= ttl-margin {
				t.Errorf("a call began %v after Renew, want none from %v on", at, ttl-margin)
			}
		}
		if len(begun) != 7 || lost.Load() != 1 || queue.count("open") < 5 {
			t.Errorf("%d calls, %d leases lost, %d sessions opened", len(begun), lost.Load(), queue.count("open"))
		}
		queue.failing(nil)
		<-time.After(30 * time.Second)
		var want []string
		for i := range 20 {
			want = append(want, fmt.Sprintf("a%d", i))
		}
		if diff := cmp.Diff(want, arrived(broker)); diff != "" {
			t.Error(diff)
		}
		stop()
	})
}

// Messages whose call is cut off by the end of the hold are not confirmed, and no attempt is counted.
func TestRelayLeaseEndIsNotTheMessagesFault(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory := outboxtest.NewMemory()
		queue := &faulty{Queue: memory}
		enqueueIDs(t, memory, "a1")
		_, stop := start(t, relay.Config{
			Queue: queue, Publisher: slow(time.Minute), LeaseTTL: 5 * time.Second,
			MaxAttempts: 1,
		})
		queue.failing(errFault, "renew")
		<-time.After(20 * time.Second)
		if got := stats(t, memory); got != "1 pending, 0 parked, 0 waiting" {
			t.Errorf("by the lease's end: %s", got)
		}
		stop()
	})
}

// The deadline of a call counts as an attempt: a publisher that hangs on one message must not hold up its key for ever.
func TestRelayPublishTimeoutCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory := outboxtest.NewMemory()
		enqueueIDs(t, memory, "a1")
		_, stop := start(t, relay.Config{
			Queue: memory, Publisher: slow(time.Minute), PublishTimeout: 5 * time.Second,
			MaxAttempts: 2, Backoff: fixed(0),
		})
		<-time.After(11 * time.Second)
		if diff := cmp.Diff([]string{"a1 after 2 behind 0: attempt 2: context deadline exceeded"},
			parked(t, memory)); diff != "" {
			t.Error(diff)
		}
		stop()
	})
}

// A publisher's own time limit is shorter than the call. Its error counts, also when the call would have ended with the
// lease: the message must not hold up its key for ever.
func TestRelayPublishersOwnTimeoutCounts(t *testing.T) {
	for _, ttl := range []time.Duration{relay.DefaultLeaseTTL, 5 * time.Second} {
		t.Run(ttl.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				memory, log := outboxtest.NewMemory(), new(lines)
				p := publisherFunc(func(ctx context.Context, msgs []outbox.Message) []error {
					errs := make([]error, len(msgs))
					for i, m := range msgs {
						if m.ID == "a1" {
							own, cancel := context.WithTimeout(ctx, 20*time.Millisecond)
							errs[i] = fmt.Errorf("post: %w", await.Sleep(own, time.Minute))
							cancel()
						}
					}
					return errs
				})
				enqueueIDs(t, memory, "a1", "b1")
				_, stop := start(t, relay.Config{
					Queue: memory, Publisher: p, LeaseTTL: ttl, MaxAttempts: 2,
					Backoff: fixed(time.Second), Logger: log.logger(),
				})
				<-time.After(3 * time.Second)
				stop()
				if diff := cmp.Diff([]string{"a1 after 2 behind 0: attempt 2: post: context deadline exceeded"},
					parked(t, memory)); diff != "" {
					t.Error(diff)
				}
				if got := stats(t, memory); got != "0 pending, 1 parked, 0 waiting" ||
					log.with("messages deferred") != 1 {
					t.Errorf("%s; log:\n%s", got, log)
				}
			})
		})
	}
}

// A relay is stopped, as by SIGSTOP, in the middle of a batch and past its lease. Its successor publishes. When the
// paused relay goes on, its late Settle changes nothing, and it opens a new session under another owner.
func TestRelayPausedPastItsLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const ttl = 10 * time.Second
		memory, log := outboxtest.NewMemory(), new(lines)
		queue, broker := &faulty{Queue: memory}, new(outboxtest.FakePublisher)
		resume, calls := make(chan struct{}), 0
		frozen := publisherFunc(func(_ context.Context, msgs []outbox.Message) []error {
			if calls++; calls == 2 {
				queue.set(func(op string) error { // the whole process is paused
					<-resume
					return nil
				})
				<-resume
			}
			return broker.Publish(context.Background(), msgs)
		})
		var ends []error
		trace := leaseLost(func(err error) { ends = append(ends, err) })
		enqueueIDs(t, memory, "a1", "a2", "a3", "a4")
		_, stop := start(t, relay.Config{
			Name: "zombie", Queue: queue, Publisher: frozen, LeaseTTL: ttl,
			Logger: log.logger(), Trace: trace,
		})
		if diff := cmp.Diff([]string{"a1"}, arrived(broker)); diff != "" {
			t.Fatal(diff)
		}
		_, stopSuccessor := start(t, relay.Config{Name: "successor", Queue: memory, Publisher: broker, LeaseTTL: ttl})
		<-time.After(2 * ttl)
		if diff := cmp.Diff([]string{"a1", "a1", "a2", "a3", "a4"}, arrived(broker)); diff != "" {
			t.Errorf("by the successor: %s", diff)
		}
		queue.failing(nil)
		close(resume)
		<-time.After(time.Second)
		synctest.Wait()
		if diff := cmp.Diff([]string{"a1", "a1", "a2", "a3", "a4", "a2"}, arrived(broker)); diff != "" {
			t.Errorf("after the pause, want what was on its way and nothing else: %s", diff)
		}
		if len(ends) != 1 || !errors.Is(ends[0], driver.ErrLeaseLost) || log.with("lease lost") != 1 ||
			queue.count("open") != 2 {
			t.Errorf("leases lost: %v; %d sessions; log:\n%s", ends, queue.count("open"), log)
		}
		<-time.After(ttl)
		st, err := memory.Stats(t.Context())
		if err != nil || st.Pending != 0 || len(st.Relays) != 2 || st.Relays[0].Shards != 32 {
			t.Errorf("%+v, %v: want both relays with 32 shards each", st, err)
		}
		stop()
		stopSuccessor()
	})
}
