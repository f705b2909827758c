package relay_test

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/txonce/txonce/observe"
	"github.com/txonce/txonce/outbox"
	"github.com/txonce/txonce/outbox/outboxtest"
	"github.com/txonce/txonce/outbox/relay"
)

// The broker is down for a minute, and there is no other publisher: no attempt is counted, nothing is written, and the
// publisher is called now and then.
func TestRelayCoolsDownWhenItsPublisherIsUnavailable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory, broker, log := outboxtest.NewMemory(), new(outboxtest.FakePublisher), new(lines)
		p := &recorder{Publisher: broker}
		var rests, ends, told atomic.Int64
		trace := &relay.Trace{
			Paused:  func(context.Context, observe.Pause) { rests.Add(1) },
			Resumed: func(context.Context, observe.Pause) { ends.Add(1) },
			Settled: func(_ context.Context, messages []relay.Settlement) {
				for _, s := range messages {
					switch {
					case s.Outcome == observe.Held && s.Cause == observe.CauseBroker && s.After == 0:
						// returned; After is the delay of a deferred one
					case s.Outcome == observe.Processed:
					default:
						told.Add(1)
					}
				}
			},
		}
		broker.Down(0)
		for i := range 100 {
			enqueueIDs(t, memory, fmt.Sprintf("k%c1", 'a'+i%26), fmt.Sprintf("-%d", i))
		}
		_, stop := start(t, relay.Config{
			Queue: memory, Publisher: p, Logger: log.logger(), Trace: trace,
			MaxAttempts: 1, BatchSize: 10,
		})
		<-time.After(time.Minute)
		if n := len(p.Calls()); n < 10 || n > 100 {
			t.Errorf("%d calls in a minute", n)
		}
		if told.Load() != 0 || stats(t, memory) != "200 pending, 0 parked, 0 waiting" {
			t.Errorf("%d deferred or parked; %s", told.Load(), stats(t, memory))
		}
		if rests.Load() != 1 || ends.Load() != 0 {
			t.Errorf("paused %d times and resumed %d times during the outage", rests.Load(), ends.Load())
		}
		broker.Up()
		<-time.After(10 * time.Second)
		if got := stats(t, memory); got != "0 pending, 0 parked, 0 waiting" {
			t.Error(got)
		}
		if rests.Load() != 1 || ends.Load() != 1 {
			t.Errorf("paused %d times and resumed %d times", rests.Load(), ends.Load())
		}
		if n := log.with("is unavailable and gets no messages"); n > 2 || log.with("is available again") != 1 {
			t.Errorf("%d lines in a minute, want one when it begins and one a minute; and one at the end:\n%s", n, log)
		}
		stop()
	})
}

// Calls that fail side by side count as one failure, also if the last of them ends after the cooldown.
func TestRelayCooldownCountsCallsSideBySideOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var calls, failures atomic.Int64
		memory := outboxtest.NewMemory()
		p := publisherFunc(func(_ context.Context, msgs []outbox.Message) []error {
			<-time.After(time.Duration(calls.Add(1)) * 2 * time.Second)
			return slices.Repeat([]error{&outbox.UnavailableError{Err: errRefused}}, len(msgs))
		})
		_, stop := start(t, relay.Config{Queue: memory, Publisher: p, Workers: 4, Backoff: func(n int) time.Duration {
			failures.Add(int64(n))
			return time.Second
		}})
		for i := range 4 {
			enqueueIDs(t, memory, fmt.Sprintf("%c1", 'a'+i))
			synctest.Wait()
		}
		if calls.Load() != 4 {
			t.Fatalf("%d calls side by side, want 4", calls.Load())
		}
		<-time.After(8500 * time.Millisecond)
		if got := failures.Load(); got != 1 {
			t.Errorf("counted up to %d, want the four calls that began together to count once", got)
		}
		if got := calls.Load(); got != 5 {
			t.Errorf("%d calls, want one that finds out whether it is available again, when the last of the others has ended", got)
		}
		stop()
	})
}

func TestRelayCoolsDownAsLongAsItsPublisherSays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory, broker := outboxtest.NewMemory(), new(outboxtest.FakePublisher)
		p := &recorder{Publisher: broker}
		broker.Down(42 * time.Second)
		enqueueIDs(t, memory, "a1")
		r, stop := start(t, relay.Config{Queue: memory, Publisher: p})
		broker.Up()
		<-time.After(42*time.Second - 1)
		r.Wake()
		synctest.Wait()
		if n := len(p.Calls()); n != 1 {
			t.Errorf("%d calls before its time", n)
		}
		<-time.After(1)
		synctest.Wait()
		if n := len(p.Calls()); n != 2 {
			t.Errorf("%d calls after 42s, want 2", n)
		}
		stop()
	})
}

// One of two brokers is down: its keys are held back and no attempt is counted; the other broker's keys go on.
func TestRelayCoolsDownOneOfSeveralPublishers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory, up, down := outboxtest.NewMemory(), new(outboxtest.FakePublisher), new(outboxtest.FakePublisher)
		p := &recorder{Publisher: down}
		down.Down(0)
		_, stop := start(t, relay.Config{Queue: memory, MaxAttempts: 1, Publishers: map[string]outbox.Publisher{"up": up, "down": p}})
		for i := range 60 {
			enqueue(t, memory, to("up", fmt.Sprintf("u%d", i)), to("down", fmt.Sprintf("d%d", i)),
				to("down", fmt.Sprintf("m%d", i)), to("up", fmt.Sprintf("m%d-", i)), to("down", fmt.Sprintf("-%d", i)))
			synctest.Wait()
			if n := len(arrived(up)); n != i+1 {
				t.Fatalf("%d of %d published by the one that is up", n, i+1)
			}
			<-time.After(time.Second)
		}
		if n := len(p.Calls()); n < 10 || n > 100 {
			t.Errorf("%d calls in a minute", n)
		}
		if got := stats(t, memory); got != "240 pending, 0 parked, 0 waiting" {
			t.Error(got)
		}
		down.Up()
		<-time.After(20 * time.Second)
		if got := stats(t, memory); got != "0 pending, 0 parked, 0 waiting" {
			t.Error(got)
		}
		stop()
	})
}

// A part of the broker is down (a partition without leader): the keys of that part are held back, and the relay goes
// on.
func TestRelayDoesNotCoolDownForAPartOfTheBroker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory, broker := outboxtest.NewMemory(), refusing("a1", &outbox.UnavailableError{Err: errRefused}, -2)
		p := &recorder{Publisher: broker}
		enqueueIDs(t, memory, "a1", "a2", "b1")
		_, stop := start(t, relay.Config{Queue: memory, Publisher: p, MaxAttempts: 1})
		if diff := cmp.Diff([][]string{{"a1", "b1"}}, p.Calls()); diff != "" {
			t.Error(diff)
		}
		enqueueIDs(t, memory, "b2")
		synctest.Wait()
		if diff := cmp.Diff([][]string{{"a1", "b1"}, {"b2"}}, p.Calls()); diff != "" {
			t.Errorf("b2 at once: %s", diff)
		}
		<-time.After(time.Minute)
		if got := stats(t, memory); got != "2 pending, 0 parked, 0 waiting" {
			t.Error(got)
		}
		stop()
	})
}

// A publisher that answers at once that the broker is away, as one does without a circuit breaker of its own: the relay
// waits longer and longer between its calls, counts no attempt, and publishes everything once the broker is back. A
// part of the broker that stays away does not keep the relay from finding out.
func TestRelayTriesAnUnavailablePublisherAgain(t *testing.T) {
	for _, test := range []struct {
		name   string
		topics map[string]outbox.Publisher
		atomic bool
		gone   int // of 200 keys: they stay unavailable
	}{
		{name: "all of the broker comes back"},
		{name: "atomic", atomic: true},
		{name: "one of several publishers", topics: map[string]outbox.Publisher{"other": new(outboxtest.FakePublisher)}},
		{name: "half of the broker stays away", gone: 100},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var mu sync.Mutex
				var sizes []int
				var times []time.Time
				down, counted := true, 0
				var p outbox.Publisher = publisherFunc(func(_ context.Context, msgs []outbox.Message) []error {
					mu.Lock()
					defer mu.Unlock()
					if down {
						sizes, times = append(sizes, len(msgs)), append(times, time.Now())
					}
					errs := make([]error, len(msgs))
					for i, m := range msgs {
						if n, _ := strconv.Atoi(m.OrderingKey); down || n < test.gone {
							errs[i] = &outbox.UnavailableError{Err: errRefused}
						}
					}
					return errs
				})
				if test.atomic {
					p = allOrNothing{p}
				}
				memory, log := outboxtest.NewMemory(), new(lines)
				trace := settled(observe.Held, func(s relay.Settlement) {
					mu.Lock()
					defer mu.Unlock()
					counted += s.Message.Attempts
				})
				var msgs []outbox.Message
				for i := range 200 {
					for n := range 2 {
						msgs = append(msgs, outbox.Message{
							ID: fmt.Sprintf("%d-%d", i, n), Topic: "orders",
							OrderingKey: strconv.Itoa(i),
						})
					}
				}
				enqueue(t, memory, msgs...)
				_, stop := start(t, relay.Config{
					Queue: memory, Publisher: p, Publishers: test.topics,
					Logger: log.logger(), Trace: trace, MaxAttempts: 1, Workers: 1,
				})
				<-time.After(2 * time.Minute)
				mu.Lock()
				down = false
				if len(sizes) < 24 || len(sizes) > 200 {
					t.Errorf("%d calls in 2 minutes, want cooldowns of 10 ms to 5 s", len(sizes))
				}
				if took := times[len(times)-1].Sub(times[0]); took < 110*time.Second {
					t.Errorf("the last try was %v after the first one", took)
				}
				mu.Unlock()
				<-time.After(time.Minute)
				if got, want := stats(t, memory), fmt.Sprintf("%d pending, 0 parked, 0 waiting",
					2*test.gone); got != want {
					t.Errorf("a minute after the broker came back: %s, want %s", got, want)
				}
				mu.Lock()
				if counted != 0 {
					t.Errorf("%d attempts were counted", counted)
				}
				mu.Unlock()
				if test.gone == 0 && (log.with("is unavailable and gets no messages") > 3 ||
					log.with("is available again") != 1) {
					t.Errorf("want a line at the start of the outage, one a minute and one at its end:\n%s", log)
				}
				stop()
			})
		})
	}
}

// allOrNothing is an AtomicPublisher.
type allOrNothing struct{ outbox.Publisher }

func (allOrNothing) Atomic() bool { return true }

// awayFor answers each message that is away with an UnavailableError, at once.
func awayFor(away func(outbox.Message) bool, confirmed func(outbox.Message)) outbox.Publisher {
	return publisherFunc(func(_ context.Context, msgs []outbox.Message) []error {
		errs := make([]error, len(msgs))
		for i, m := range msgs {
			if away(m) {
				errs[i] = &outbox.UnavailableError{Err: errRefused}
			} else {
				confirmed(m)
			}
		}
		return errs
	})
}

// silent answers no message before the end of its call.
func silent(calls *atomic.Int64) outbox.Publisher {
	return publisherFunc(func(ctx context.Context, msgs []outbox.Message) []error {
		calls.Add(1)
		<-ctx.Done()
		errs := make([]error, len(msgs))
		for i := range errs {
			errs[i] = &outbox.UnavailableError{Err: ctx.Err()}
		}
		return errs
	})
}

// Most of what is pending belongs to a part of the broker that is away. Messages of the other parts must not wait for
// it.
func TestRelayPartOfTheBrokerHoldsUpNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory := outboxtest.NewMemory()
		enqueued, worst := map[string]time.Time{}, time.Duration(0)
		var mu sync.Mutex
		publisher := awayFor(func(m outbox.Message) bool { return m.Topic == "away" }, func(m outbox.Message) {
			mu.Lock()
			defer mu.Unlock()
			worst = max(worst, time.Since(enqueued[m.ID]))
			delete(enqueued, m.ID)
		})
		for i := range 400 {
			id := fmt.Sprintf("away-%d", i)
			enqueue(t, memory, outbox.Message{ID: id, OrderingKey: id, Topic: "away"})
		}
		_, stop := start(t, relay.Config{Queue: memory, Publisher: publisher})
		defer stop()
		<-time.After(10 * time.Second)
		for i := range 20 {
			id := fmt.Sprintf("there-%d", i)
			mu.Lock()
			enqueued[id] = time.Now()
			mu.Unlock()
			enqueue(t, memory, outbox.Message{ID: id, OrderingKey: id, Topic: "there"})
			<-time.After(5 * time.Second)
		}
		mu.Lock()
		defer mu.Unlock()
		if len(enqueued) > 0 || worst > 10*time.Second {
			t.Errorf("%d messages were not published, and one waited for %v", len(enqueued), worst)
		}
	})
}

// Calls of a publisher that hangs hold up the shards of their batches, so they must be rare.
func TestRelayPublisherThatHangsHoldsUpNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory := outboxtest.NewMemory()
		var calls, confirmed atomic.Int64
		there := awayFor(func(outbox.Message) bool { return false }, func(outbox.Message) { confirmed.Add(1) })
		for i := range 300 {
			id := fmt.Sprint(i)
			enqueue(t, memory, outbox.Message{ID: "hangs-" + id, OrderingKey: id, Topic: "hangs"},
				outbox.Message{ID: "there-" + id, OrderingKey: "there-" + id, Topic: "there"})
		}
		_, stop := start(t, relay.Config{Queue: memory, Publishers: map[string]outbox.Publisher{"hangs": silent(&calls), "there": there}})
		defer stop()
		<-time.After(5 * time.Minute)
		if confirmed.Load() != 300 {
			t.Errorf("%d of 300 messages were published", confirmed.Load())
		}
		if n := calls.Load(); n < 5 || n > 15 {
			t.Errorf("%d calls in 5 minutes hung for 10 s each, want cooldowns up to 30 s", n)
		}
	})
}

// When leases are short, a call that hangs ends with its lease and not with PublishTimeout.
func TestRelayCoolsDownWhenCallsEndWithTheLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory, log := outboxtest.NewMemory(), new(lines)
		var calls atomic.Int64
		for i := range 300 {
			enqueue(t, memory, msg(fmt.Sprint(i)))
		}
		_, stop := start(t, relay.Config{
			Queue: memory, Publisher: silent(&calls), LeaseTTL: 5 * time.Second,
			Logger: log.logger(),
		})
		defer stop()
		<-time.After(5 * time.Minute)
		if n := calls.Load(); n < 5 || n > 30 {
			t.Errorf("%d calls in 5 minutes, want cooldowns up to 30 s", n)
		}
		if n := log.with("is unavailable and gets no messages"); n < 4 || n > 6 {
			t.Errorf("want a line at the start of the outage, and one a minute:\n%s", log)
		}
	})
}
