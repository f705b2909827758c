package relay_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
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

var errMissing = &outbox.TopicError{Err: errors.New("no such topic; create it")}

// missing is a broker that does not have the topic "gone" until it is created.
func missing() (broker *outboxtest.FakePublisher, create func()) {
	var created atomic.Bool
	return &outboxtest.FakePublisher{Decide: func(m outbox.Message) (f outboxtest.Fate) {
		if m.Topic == "gone" && !created.Load() {
			f.Err = fmt.Errorf("wrapped: %w", errMissing)
		}
		return f
	}}, func() { created.Store(true) }
}

// gone are messages to that topic, each with a key of its own.
func gone(n int) (msgs []outbox.Message) {
	for i := range n {
		msgs = append(msgs, to("gone", fmt.Sprintf("g%c%c-%d", 'a'+i%26, 'a'+i/26%26, i)))
	}
	return msgs
}

// A topic is missing for ten minutes: none of its messages is parked, no attempt is counted, and one message at a time
// is tried. The other topics are not affected, and the topic goes on by itself.
func TestRelayCoolsDownATopicAtFault(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory, log := outboxtest.NewMemory(), new(lines)
		broker, create := missing()
		p := &recorder{Publisher: broker}
		var deferrals, rests atomic.Int64
		trace := &relay.Trace{
			Settled: func(_ context.Context, messages []relay.Settlement) {
				for _, s := range messages {
					if s.Outcome == observe.Held && s.Cause == observe.CauseBroker {
						deferrals.Add(1)
					}
				}
			},
			Paused: func(_ context.Context, p observe.Pause) {
				if rests.Add(1); p.Topic != "gone" || !errors.Is(p.Err, errMissing) || p.Cause != observe.CauseBroker {
					t.Errorf("told %+v", p)
				}
			},
			Resumed: func(context.Context, observe.Pause) { rests.Add(-1) },
		}
		enqueue(t, memory, gone(150)...)
		_, stop := start(t, relay.Config{
			Queue: memory, Publisher: p, Logger: log.logger(), Trace: trace,
			MaxAttempts: 2, BatchSize: 1000,
		})
		first := len(slices.Concat(p.Calls()...))
		for i := range 600 {
			enqueue(t, memory, to("fine", fmt.Sprintf("fine%d", i)))
			synctest.Wait()
			if n := len(arrived(broker)); n != i+1 {
				t.Fatalf("%d of %d published to the topic that is there", n, i+1)
			}
			<-time.After(time.Second)
		}
		if got := stats(t, memory); got != "150 pending, 0 parked, 0 waiting" {
			t.Error(got)
		}
		if probes := len(slices.Concat(p.Calls()...)) - first - 600; probes < 10 || probes > 20 {
			t.Errorf("%d messages found out within ten minutes whether the topic is there, want one for each rest", probes)
		}
		if n := deferrals.Load(); n > 150*30 {
			t.Errorf("%d messages were held back, want each but once or twice in a rest", n)
		}
		if n := log.with("a topic is missing or closed"); n < 8 || n > 11 {
			t.Errorf("%d lines in ten minutes, want one a minute:\n%s", n, log)
		}
		if rests.Load() != 1 {
			t.Errorf("%d pauses are on, want one", rests.Load())
		}
		create()
		<-time.After(2 * time.Minute)
		if rests.Load() != 0 {
			t.Errorf("%d pauses are on after the topic was made", rests.Load())
		}
		if got := stats(t, memory); got != "0 pending, 0 parked, 0 waiting" {
			t.Errorf("two minutes after the topic was created: %s", got)
		}
		if log.with("a topic takes messages again") != 1 {
			t.Errorf("want one line:\n%s", log)
		}
		stop()
	})
}

// This is the topic in the store's Stats during the cooldown.
func TestRelayTopicAtFaultIsInStats(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory := outboxtest.NewMemory()
		broker, _ := missing()
		enqueue(t, memory, append(gone(3), to("fine", "f1"))...)
		_, stop := start(t, relay.Config{Queue: memory, Publisher: broker})
		enqueue(t, memory, to("gone", "late-1"))
		<-time.After(90 * time.Second)
		st, err := memory.Stats(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		got := st.Topics["gone"]
		if got.Pending != 4 || got.Failing < 3 || !strings.Contains(got.Error, errMissing.Error()) ||
			got.PendingAge != 90*time.Second {
			t.Errorf("stats of the topic: %+v", got)
		}
		if st.PendingAge != 90*time.Second || len(st.Topics) != 1 {
			t.Errorf("stats: %+v", st)
		}
		stop()
	})
}

// A key keeps its order across topics, also while one of them cools down. A message of another topic does not end the
// cooldown.
func TestRelayTopicAtFaultKeepsTheOrderOfKeys(t *testing.T) {
	for _, atomic := range []bool{false, true} {
		t.Run(fmt.Sprintf("atomic %v", atomic), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				memory := outboxtest.NewMemory()
				broker, create := missing()
				broker.AllOrNothing = atomic
				enqueue(t, memory, to("fine", "a1"), to("gone", "a2"), to("fine", "a3"), to("gone", "b1"),
					to("fine", "b2"), to("fine", "c1"))
				_, stop := start(t, relay.Config{Queue: memory, Publisher: broker, MaxAttempts: 1})
				<-time.After(10 * time.Minute)
				got := arrived(broker)
				slices.Sort(got)
				if diff := cmp.Diff([]string{"a1", "c1"}, got); diff != "" {
					t.Errorf("while it is missing: %s", diff)
				}
				create()
				<-time.After(3 * time.Minute)
				got = arrived(broker)
				if len(got) != 6 || slices.Index(got, "a2") > slices.Index(got, "a3") ||
					slices.Index(got, "b1") > slices.Index(got, "b2") {
					t.Errorf("at the end: %v", got)
				}
				stop()
			})
		})
	}
}

// A probe that fails because of its own message shows nothing about its topic: the next message is tried, and the
// others go on.
func TestRelayProbeThatIsRefusedItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory := outboxtest.NewMemory()
		broker, create := missing()
		decide := broker.Decide
		broker.Decide = func(m outbox.Message) outboxtest.Fate {
			if f := decide(m); f.Err != nil || m.ID != "a1" {
				return f
			}
			return outboxtest.Fate{Err: outbox.Permanent(errRefused)}
		}
		enqueue(t, memory, to("gone", "a1"), to("gone", "b1"), to("gone", "c1"))
		_, stop := start(t, relay.Config{Queue: memory, Publisher: broker})
		create()
		<-time.After(5 * time.Second)
		if got := stats(t, memory); got != "0 pending, 1 parked, 0 waiting" {
			t.Errorf("%s, published %v", got, arrived(broker))
		}
		stop()
	})
}

// When every message is refused, for any reason, no more messages than the limit are parked, and every message stays in
// the outbox.
func TestRelayParksNoMoreThanItsLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory, log := outboxtest.NewMemory(), new(lines)
		var open atomic.Bool
		broker := &outboxtest.FakePublisher{Decide: func(outbox.Message) (f outboxtest.Fate) {
			if !open.Load() {
				f.Err = outbox.Permanent(errRefused)
			}
			return f
		}}
		enqueue(t, memory, gone(200)...)
		_, stop := start(t, relay.Config{
			Queue: memory, Publisher: broker, Logger: log.logger(),
			ParkLimit: relay.ParkLimit{Burst: 50, PerMinute: 10},
		})
		if got := stats(t, memory); got != "150 pending, 50 parked, 0 waiting" {
			t.Errorf("at once: %s", got)
		}
		<-time.After(5*time.Minute + time.Second)
		st, _ := memory.Stats(t.Context())
		if st.Parked < 90 || st.Parked > 100 || st.Pending+st.Parked != 200 ||
			!strings.Contains(st.Topics["gone"].Error, "parking limit spent") {
			t.Errorf("after five minutes: %+v", st)
		}
		if n := log.with("too many messages to park"); n < 3 || n > 6 {
			t.Errorf("%d lines in five minutes, want one a minute", n)
		}
		open.Store(true)
		<-time.After(2 * time.Minute)
		if st, _ := memory.Stats(t.Context()); st.Pending != 0 || st.Parked > 120 {
			t.Errorf("two minutes after the broker takes messages again: %+v", st)
		}
		stop()
	})
}
