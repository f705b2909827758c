package relay_test

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/txonce/txonce/internal/await"
	"github.com/txonce/txonce/observe"
	"github.com/txonce/txonce/outbox"
	"github.com/txonce/txonce/outbox/outboxtest"
	"github.com/txonce/txonce/outbox/relay"
)

// unusable gives broker's answers, unless the message of that id is in the call.
func unusable(id string, broker *outboxtest.FakePublisher, answer func() []error) publisherFunc {
	return func(ctx context.Context, msgs []outbox.Message) []error {
		if slices.ContainsFunc(msgs, func(m outbox.Message) bool { return m.ID == id }) {
			clear(msgs) // the relay must not trust the slice afterwards
			return answer()
		}
		return broker.Publish(ctx, msgs)
	}
}

// A call without usable answers counts only against the message that is alone in such a call. The other messages of the
// call are published at once.
func TestRelayIsolatesAMessageWithoutAnswer(t *testing.T) {
	for name, answer := range map[string]func() []error{
		"panics":             func() []error { panic("boom") },
		"ends its goroutine": func() []error { runtime.Goexit(); return nil },
		"wrong number":       func() []error { return []error{} },
	} {
		for _, atomic := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, atomic %v", name, atomic), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					memory, broker, log := outboxtest.NewMemory(), &outboxtest.FakePublisher{AllOrNothing: atomic},
						new(lines)
					var p outbox.Publisher = unusable("a2", broker, answer)
					if atomic {
						p = &atomicRecorder{recorder{Publisher: p}}
					}
					enqueueIDs(t, memory, "b1", "a1", "a2", "a3", "b2", "-1", "-2")
					_, stop := start(t, relay.Config{
						Queue: memory, Publisher: p, MaxAttempts: 2,
						Backoff: fixed(time.Second), Logger: log.logger(),
					})
					got := arrived(broker)
					slices.Sort(got)
					if diff := cmp.Diff([]string{"-1", "-2", "a1", "b1", "b2"}, got); diff != "" {
						t.Errorf("published: %s", diff)
					}
					<-time.After(3 * time.Second)
					stop()
					got = parked(t, memory)
					if len(got) != 2 || !strings.HasPrefix(got[0], "a2 after 2 behind 0") ||
						!strings.HasPrefix(got[1], "a3 after 0 behind 3") {
						t.Errorf("parked %q, want a2 and, behind it, a3", got)
					}
					calls := 1 // with more messages than a2
					if atomic {
						calls = 2
					}
					if log.with("one by one") != calls || log.with("message parked") != 1 {
						t.Errorf("log:\n%s", log)
					}
				})
			})
		}
	}
}

// When a call without usable answers leaves no time to publish its messages one by one, one message counts, so that the
// call is not repeated for ever. The others are tried again without it.
func TestRelayHasNoTimeToIsolate(t *testing.T) {
	for _, ttl := range []time.Duration{relay.DefaultLeaseTTL, 5 * time.Second} {
		t.Run(ttl.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				memory := outboxtest.NewMemory()
				p := publisherFunc(func(ctx context.Context, _ []outbox.Message) []error {
					_ = await.Sleep(ctx, time.Minute)
					panic("boom")
				})
				var deferred []string
				trace := settled(observe.Retried, func(s relay.Settlement) { deferred = append(deferred, s.Message.ID) })
				enqueueIDs(t, memory, "a1", "b1", "c1")
				cfg := relay.Config{
					Queue: memory, Publisher: p, LeaseTTL: ttl, MaxAttempts: 2,
					Backoff: fixed(time.Hour), Trace: trace,
				}
				_, stop := start(t, cfg)
				<-time.After(time.Minute)
				if diff := cmp.Diff([]string{"a1", "b1", "c1"}, deferred); diff != "" {
					t.Errorf("deferred: %s", diff)
				}
				stop()
			})
		})
	}
}

// A message that had only the rest of a call's time, because it was isolated, is not counted.
func TestRelayIsolatedMessageThatIsCutOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory, broker := outboxtest.NewMemory(), slow(6*time.Second)
		p := &recorder{Publisher: unusable("a1", broker, func() []error { panic("boom") })}
		enqueueIDs(t, memory, "a1", "b1", "c1")
		var deferred []string
		trace := settled(observe.Retried, func(s relay.Settlement) { deferred = append(deferred, s.Message.ID) })
		_, stop := start(t, relay.Config{Queue: memory, Publisher: p, Backoff: fixed(time.Hour), Trace: trace})
		<-time.After(time.Minute)
		if diff := cmp.Diff([][]string{{"a1", "b1", "c1"}, {"a1"}, {"b1"}, {"c1"}, {"c1"}}, p.Calls()); diff != "" {
			t.Error(diff)
		}
		if got := arrived(broker); !slices.Equal(got, []string{"b1", "c1"}) || !slices.Equal(deferred, []string{"a1"}) {
			t.Errorf("published %v, deferred %v", got, deferred)
		}
		stop()
	})
}
