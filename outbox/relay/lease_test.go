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

	"github.com/txonce/txonce/internal/await"
	"github.com/txonce/txonce/outbox"
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
		trace := &relay.Trace{LeaseLost: func(context.Context, relay.Event) { lost.Add(1) }}
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

// A batch that takes much longer than the lease is no reason to lose it.
func TestRelayRenewsWhileItPublishes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory, broker := outboxtest.NewMemory(), slow(time.Second)
		queue := &faulty{Queue: memory}
		var want []string
		for i := range 60 {
			want = append(want, fmt.Sprintf("a%d", i))
		}
		enqueueIDs(t, memory, want...)
		_, stop := start(t, relay.Config{Queue: queue, Publisher: broker, LeaseTTL: 5 * time.Second})
		_, stopOther := start(t, relay.Config{Queue: memory, Publisher: broker, LeaseTTL: 5 * time.Second})
		<-time.After(61 * time.Second)
		if diff := cmp.Diff(want, arrived(broker)); diff != "" {
			t.Error(diff)
		}
		if queue.count("open") != 1 {
			t.Errorf("%d sessions", queue.count("open"))
		}
		stop()
		stopOther()
	})
}

// Messages whose call is cut off by the end of the hold are not confirmed, and no attempt is counted.
func TestRelayLeaseEndIsNotTheMessagesFault(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory := outboxtest.NewMemory()
		queue := &faulty{Queue: memory}
		enqueueIDs(t, memory, "a1")
		_, stop := start(t, relay.Config{Queue: queue, Publisher: slow(time.Minute), LeaseTTL: 5 * time.Second, MaxAttempts: 1})
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
		_, stop := start(t, relay.Config{Queue: memory, Publisher: slow(time.Minute), PublishTimeout: 5 * time.Second, MaxAttempts: 2, Backoff: fixed(0)})
		<-time.After(11 * time.Second)
		if diff := cmp.Diff([]string{"a1 after 2 behind 0: attempt 2: context deadline exceeded"}, parked(t, memory)); diff != "" {
			t.Error(diff)
		}
		stop()
	})
}

// A publisher's own time limit is shorter than the call. Its error counts, also when the call would have ended with the lease: the
// message must not hold up its key for ever.
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
				_, stop := start(t, relay.Config{Queue: memory, Publisher: p, LeaseTTL: ttl, MaxAttempts: 2, Backoff: fixed(time.Second), Logger: log.logger()})
				<-time.After(3 * time.Second)
				stop()
				if diff := cmp.Diff([]string{"a1 after 2 behind 0: attempt 2: post: context deadline exceeded"}, parked(t, memory)); diff != "" {
					t.Error(diff)
				}
				if got := stats(t, memory); got != "0 pending, 1 parked, 0 waiting" || log.with("messages deferred") != 1 {
					t.Errorf("%s; log:\n%s", got, log)
				}
			})
		})
	}
}

// A relay is stopped, as by SIGSTOP, in the middle of a batch and past its lease. Its successor publishes. When the paused relay
// goes on, its late Settle changes nothing, and it opens a new session under another owner.
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
		trace := &relay.Trace{LeaseLost: func(_ context.Context, e relay.Event) { ends = append(ends, e.Err) }}
		enqueueIDs(t, memory, "a1", "a2", "a3", "a4")
		_, stop := start(t, relay.Config{Name: "zombie", Queue: queue, Publisher: frozen, LeaseTTL: ttl, Logger: log.logger(), Trace: trace})
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
		if len(ends) != 1 || !errors.Is(ends[0], outbox.ErrLeaseLost) || log.with("lease lost") != 1 || queue.count("open") != 2 {
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

// The queue itself says that the lease is lost, on each of its operations.
func TestRelayBeginsAnewWhenTheLeaseIsLost(t *testing.T) {
	for _, op := range []string{"renew", "lease", "settle"} {
		t.Run(op, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				memory := outboxtest.NewMemory()
				queue, broker := &faulty{Queue: memory}, new(outboxtest.FakePublisher)
				_, stop := start(t, relay.Config{Queue: queue, Publisher: broker})
				var once atomic.Bool
				queue.set(func(o string) error {
					if o == op && once.CompareAndSwap(false, true) {
						return fmt.Errorf("wrapped: %w", outbox.ErrLeaseLost)
					}
					return nil
				})
				enqueueIDs(t, memory, "a1", "a2")
				<-time.After(20 * time.Second)
				want := []string{"a1", "a2"}
				if op == "settle" {
					want = []string{"a1", "a2", "a1", "a2"}
				}
				if diff := cmp.Diff(want, arrived(broker)); diff != "" {
					t.Error(diff)
				}
				if queue.count("open") != 2 || stats(t, memory) != "0 pending, 0 parked, 0 waiting" {
					t.Errorf("%d sessions; %s", queue.count("open"), stats(t, memory))
				}
				stop()
			})
		})
	}
}

// While Settle fails nothing is published again: the outcomes are kept, and settled when it works.
func TestRelaySettlesAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory, log := outboxtest.NewMemory(), new(lines)
		queue, broker := &faulty{Queue: memory}, new(outboxtest.FakePublisher)
		queue.failing(errFault, "settle")
		var failed atomic.Int64
		trace := &relay.Trace{QueueFailed: func(_ context.Context, e relay.Event) {
			if !errors.Is(e.Err, errFault) {
				t.Error(e.Err)
			}
			failed.Add(1)
		}}
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
		if n := failed.Load(); n < 40 || n > 120 {
			t.Errorf("%d tries in two minutes", n)
		}
		if log.with("database fails") != 1 || log.with("works again") != 1 {
			t.Errorf("want two lines:\n%s", log)
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

// The database is away for a minute, in the middle of a batch. Run waits, logs the outage once, and publishes only that batch
// again.
func TestRelayDatabaseOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory, log := outboxtest.NewMemory(), new(lines)
		queue, broker := &faulty{Queue: memory}, new(outboxtest.FakePublisher)
		all := []string{"open", "renew", "lease", "settle", "maintain"}
		_, stop := start(t, relay.Config{Queue: queue, Publisher: broker, LeaseTTL: 10 * time.Second, Logger: log.logger()})
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

// Lease and Maintain always fail, for example because of a missing privilege. The hold is renewed, and each failure is logged
// once.
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
			queue.failing(fmt.Errorf("no table: %w", outbox.ErrSchema), op)
			r := newRelay(t, relay.Config{Queue: queue, Publisher: new(outboxtest.FakePublisher), Logger: log.logger()})
			if err := r.Run(t.Context()); !errors.Is(err, outbox.ErrSchema) {
				t.Errorf("Run = %v, want ErrSchema", err)
			}
			if _, err := r.RunOnce(t.Context()); !errors.Is(err, outbox.ErrSchema) {
				t.Errorf("RunOnce = %v, want ErrSchema", err)
			}
		})
	}
	synctest.Test(t, func(t *testing.T) { // after it has run, this is an outage: perhaps a backup is being restored
		queue, broker := &faulty{Queue: outboxtest.NewMemory()}, new(outboxtest.FakePublisher)
		_, stop := start(t, relay.Config{Queue: queue, Publisher: broker})
		queue.failing(outbox.ErrSchema, "open", "renew", "lease", "settle", "maintain")
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

// A relay was started twice with one name: both work, and each logs that once.
func TestRelayWithTheSameName(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory, broker := outboxtest.NewMemory(), new(outboxtest.FakePublisher)
		first, second, third := new(lines), new(lines), new(lines)
		var stops []func()
		for _, started := range []struct {
			name string
			log  *lines
		}{{"r", first}, {"r", second}, {"other", third}} {
			_, stop := start(t, relay.Config{Name: started.name, Queue: memory, Publisher: broker, Logger: started.log.logger()})
			stops = append(stops, stop)
		}
		<-time.After(time.Minute)
		for i, log := range []*lines{first, second, third} {
			if got, want := log.with("under the same name"), []int{1, 1, 0}[i]; got != want {
				t.Errorf("relay %d: %d warnings, want %d", i, got, want)
			}
		}
		if first.with("relay=r others=1") != 1 {
			t.Errorf("the warning must name the relay:\n%s", first)
		}
		for _, stop := range stops {
			stop()
		}
	})
}

// Relays come and go, and share the shards within seconds.
func TestRelaySharesAndHandsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory, broker := outboxtest.NewMemory(), new(outboxtest.FakePublisher)
		shares := func() (got []int) {
			st, err := memory.Stats(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			for _, r := range st.Relays {
				got = append(got, r.Shards)
			}
			slices.Sort(got)
			return got
		}
		_, stopFirst := start(t, relay.Config{Queue: memory, Publisher: broker})
		if diff := cmp.Diff([]int{64}, shares()); diff != "" {
			t.Error(diff)
		}
		<-time.After(time.Second / 2) // so that they do not renew at the same moments
		_, stopSecond := start(t, relay.Config{Queue: memory, Publisher: broker, PollMin: time.Hour})
		<-time.After(7 * time.Second)
		if diff := cmp.Diff([]int{32, 32}, shares()); diff != "" {
			t.Errorf("7s after a second relay has come: %s", diff)
		}
		stopFirst()
		for i := range 20 {
			enqueueIDs(t, memory, fmt.Sprintf("%c1", 'a'+i))
		}
		<-time.After(5*time.Second + time.Millisecond)
		if diff := cmp.Diff([]int{64}, shares()); diff != "" {
			t.Errorf("5s after the first has gone: %s", diff)
		}
		if got := len(arrived(broker)); got != 20 {
			t.Errorf("%d of 20 published at once when their shards were taken over", got)
		}
		stopSecond()
	})
}
