package relay_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/txonce/txonce/observe"
	"github.com/txonce/txonce/outbox"
	"github.com/txonce/txonce/outbox/driver"
	"github.com/txonce/txonce/outbox/outboxtest"
	"github.com/txonce/txonce/outbox/relay"
)

var errRefused = errors.New("the broker refuses this message")

// refusing answers err for one message, the first n times; n < 0: always.
func refusing(id string, err error, n int) *outboxtest.FakePublisher {
	var left atomic.Int64
	left.Store(int64(n))
	return &outboxtest.FakePublisher{Decide: func(m outbox.Message) (f outboxtest.Fate) {
		if m.ID == id && left.Add(-1) != -1 {
			f.Err = err
		}
		return f
	}}
}

func fixed(d time.Duration) func(int) time.Duration { return func(int) time.Duration { return d } }

// parked lists the parked messages: ID, cause, behind.
func parked(t tb, m *outboxtest.Memory) []string {
	t.Helper()
	list, err := m.Parked(context.Background(), outbox.ParkedFilter{})
	if err != nil {
		t.Fatal(err)
	}
	lines := []string{}
	for _, p := range list {
		lines = append(lines, fmt.Sprintf("%s after %d behind %d: %s", p.ID, p.Attempts, p.Behind, p.Error))
	}
	return lines
}

func TestRelayRefusedMessageStopsItsKeyOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory, broker, log := outboxtest.NewMemory(), refusing("a2", errRefused, 2), new(lines)
		var attempts []int
		enqueueIDs(t, memory, "a1", "a2", "a3", "b1", "b2", "-1")
		_, stop := start(t, relay.Config{Queue: memory, Publisher: broker, Logger: log.logger(), Backoff: func(attempt int) time.Duration {
			attempts = append(attempts, attempt)
			return time.Duration(attempt) * 3 * time.Second
		}})
		got := arrived(broker)
		slices.Sort(got)
		if diff := cmp.Diff([]string{"-1", "a1", "b1", "b2"}, got); diff != "" {
			t.Errorf("at once: %s", diff)
		}
		enqueueIDs(t, memory, "a4", "b3")
		<-time.After(9*time.Second - time.Millisecond)
		if got := arrived(broker); slices.Contains(got, "a2") || slices.Contains(got, "a3") ||
			slices.Contains(got, "a4") || !slices.Contains(got, "b3") {
			t.Errorf("before the second backoff has passed: %v", got)
		}
		<-time.After(2 * time.Millisecond)
		if got := arrived(broker); !slices.Equal(got[len(got)-3:], []string{"a2", "a3", "a4"}) {
			t.Errorf("after 9 s: %v", got)
		}
		if diff := cmp.Diff([]int{1, 2}, attempts); diff != "" {
			t.Errorf("attempts given to Backoff: %s", diff)
		}
		if n := log.with("messages deferred"); n != 2 || strings.Contains(log.String(), "payload") {
			t.Errorf("want a line for each failure and no payload:\n%s", log)
		}
		stop()
	})
}

// A deferred message is retried exactly when its backoff has passed, and not at the next regular poll.
func TestRelayRetriesWhenTheBackoffHasPassed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory, broker := outboxtest.NewMemory(), refusing("-1", errRefused, 1)
		_, stop := start(t, relay.Config{
			Queue: memory, Publisher: broker, Backoff: fixed(7777 * time.Millisecond),
			PollMax: time.Minute,
		})
		began := time.Now()
		enqueueIDs(t, memory, "-1")
		<-time.After(10 * time.Second)
		if p := broker.Published(); len(p) != 1 || p[0].At.Sub(began) != 7777*time.Millisecond {
			t.Errorf("published %v, want -1 after 7.777s", p)
		}
		stop()
	})
}

func TestRelayParksAtMaxAttempts(t *testing.T) {
	for _, test := range []struct {
		keep      outbox.ParkPolicy
		published []string
		parked    []string
	}{
		{outbox.BlockKey, []string{"a1"}, []string{
			"a2 after 3 behind 0: attempt 3: the broker refuses this message",
			"a3 after 0 behind 2: stands behind message 2 of its key",
			"a4 after 0 behind 2: stands behind message 2 of its key",
		}},
		{outbox.ParkKey, []string{"a1"}, []string{
			"a2 after 3 behind 0: attempt 3: the broker refuses this message",
			"a3 after 0 behind 2: stands behind message 2 of its key",
			"a4 after 0 behind 2: stands behind message 2 of its key",
		}},
		{outbox.SkipMessage, []string{"a1", "a3", "a4"}, []string{"a2 after 3 behind 0: attempt 3: the broker refuses this message"}},
	} {
		t.Run(fmt.Sprintf("ParkPolicy %d", test.keep), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				memory, broker, log := outboxtest.NewMemory(), refusing("a2", errRefused, -2), new(lines)
				var told []error
				trace := settled(observe.Parked, func(s relay.Settlement) {
					if s.Message.ID != "a2" || s.Relay != "r" || s.Cause != observe.CauseExhausted {
						t.Errorf("told of %q by %q: %s", s.Message.ID, s.Relay, s.Cause)
					}
					told = append(told, s.Err)
				})
				enqueueIDs(t, memory, "a1", "a2", "a3")
				_, stop := start(t, relay.Config{
					Name: "r", Queue: memory, Publisher: broker, MaxAttempts: 3,
					Backoff: fixed(time.Second), ParkPolicy: test.keep, Logger: log.logger(), Trace: trace,
				})
				<-time.After(5 * time.Second)
				enqueueIDs(t, memory, "a4")
				<-time.After(5 * time.Second)
				if diff := cmp.Diff(test.published, arrived(broker)); diff != "" {
					t.Errorf("published: %s", diff)
				}
				if diff := cmp.Diff(test.parked, parked(t, memory)); diff != "" {
					t.Errorf("parked: %s", diff)
				}
				if len(told) != 1 || !errors.Is(told[0], errRefused) || log.with("message parked") != 1 {
					t.Errorf("told %v, log:\n%s", told, log)
				}
				list, _ := memory.Parked(t.Context(), outbox.ParkedFilter{})
				for _, p := range list[1:] {
					if p.Waiting != (test.keep == outbox.BlockKey) {
						t.Errorf("%s: waiting is %v", p.ID, p.Waiting)
					}
				}
				stop()
			})
		})
	}
}

func TestRelayParksAtOnceWhatIsPermanent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory, broker := outboxtest.NewMemory(), refusing("a1",
			fmt.Errorf("wrapped: %w", outbox.Permanent(errRefused)), -2)
		enqueueIDs(t, memory, "a1", "b1")
		if n, err := newRelay(t, relay.Config{Queue: memory, Publisher: broker}).RunOnce(t.Context()); n != 1 ||
			err != nil {
			t.Errorf("RunOnce = %d, %v: what is refused is no error of the relay's", n, err)
		}
		if diff := cmp.Diff([]string{"a1 after 1 behind 0: wrapped: the broker refuses this message"},
			parked(t, memory)); diff != "" {
			t.Error(diff)
		}
	})
}

func TestRelayWithoutPublisherForATopic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory, broker := outboxtest.NewMemory(), new(outboxtest.FakePublisher)
		enqueue(t, memory, to("x", "a1"), to("y", "b1"), to("x", "b2"))
		log := new(lines)
		_, stop := start(t, relay.Config{
			Queue: memory, Publishers: map[string]outbox.Publisher{"x": broker},
			MaxAttempts: 2, Logger: log.logger(),
		})
		<-time.After(10 * time.Minute)
		if diff := cmp.Diff([]string{"a1"}, arrived(broker)); diff != "" {
			t.Error(diff)
		}
		st, err := memory.Stats(t.Context())
		if of := st.Topics["y"]; err != nil || st.Pending != 2 || of.Failing != 1 ||
			of.Error != `relay: no publisher for topic "y"` {
			t.Errorf("%+v, error %v; want both pending, and why", st, err)
		}
		if n := log.with(`topic=y`); n < 8 || n > 11 {
			t.Errorf("%d lines in ten minutes, want one a minute:\n%s", n, log)
		}
		stop()
	})
}

// When a publisher does not answer as it must, not for a single message either, each message counts as failed, because
// it is unknown which of them arrived. The error names the publisher.
func TestRelayPublisherThatDoesNotAnswer(t *testing.T) {
	for _, test := range []struct {
		name  string
		p     publisherFunc
		cause string
	}{
		{
			"panics", func(context.Context, []outbox.Message) []error { panic(outbox.Permanent(errRefused)) },
			`panicked: the broker refuses this message`,
		},
		{
			"ends its goroutine", func(context.Context, []outbox.Message) []error { runtime.Goexit(); return nil },
			`it called runtime.Goexit, or FailNow of a test`,
		},
		{"too few answers", func(_ context.Context, msgs []outbox.Message) []error { return make([]error, len(msgs)-1) }, `gave 0 answers for 1 messages`},
		{
			"too many answers", func(context.Context, []outbox.Message) []error { return make([]error, 3) },
			`gave 3 answers for 1 messages`,
		},
		{
			"no answers", func(context.Context, []outbox.Message) []error { return []error{} },
			`gave 0 answers for 1 messages`,
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				memory := outboxtest.NewMemory()
				enqueueIDs(t, memory, "a1", "b1")
				var deferred []string
				trace := settled(observe.Retried, func(s relay.Settlement) { deferred = append(deferred, s.Message.ID+" "+s.Err.Error()) })
				cfg := relay.Config{
					Queue: memory, Publisher: test.p, MaxAttempts: 2, Backoff: fixed(time.Minute),
					Trace: trace,
				}
				if n, err := newRelay(t, cfg).RunOnce(t.Context()); n != 0 || err != nil {
					t.Fatalf("RunOnce = %d, %v", n, err)
				}
				if len(deferred) != 2 || !strings.Contains(deferred[0], "relay_test.publisherFunc") ||
					!strings.HasSuffix(deferred[1], test.cause) {
					t.Errorf("deferred %q, want both, with %q", deferred, test.cause)
				}
				<-time.After(time.Minute)
				if n, err := newRelay(t, cfg).RunOnce(t.Context()); n != 0 || err != nil {
					t.Fatalf("RunOnce = %d, %v", n, err)
				}
				if got := stats(t, memory); got != "0 pending, 2 parked, 0 waiting" {
					t.Error(got)
				}
			})
		})
	}
}

// A panic of the HeaderFormat is a failure of its message. The rest of its call is not published, because the message
// might be in front of others.
func TestRelayLayoutThatPanics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, atomic := range []bool{false, true} {
			memory, broker := outboxtest.NewMemory(), &outboxtest.FakePublisher{AllOrNothing: atomic}
			enqueueIDs(t, memory, "a1", "a2", "b1")
			r := newRelay(t, relay.Config{Queue: memory, Publisher: broker, MaxAttempts: 1, HeaderFormat: func(m outbox.Stored) map[string]string {
				if m.ID == "a1" {
					panic("boom")
				}
				return outbox.PlainHeaders(m)
			}})
			if n, err := r.RunOnce(t.Context()); n != 1 || err != nil {
				t.Errorf("atomic %v: RunOnce = %d, %v", atomic, n, err)
			}
			if got := stats(t, memory); got != "0 pending, 1 parked, 1 waiting" {
				t.Errorf("atomic %v: %s, published %v", atomic, got, arrived(broker))
			}
		}
	})
}

// A HeaderFormat that ends its goroutine fails for its message. The other messages of the call are neither published
// nor counted then, and none of them may be taken for published.
func TestRelayHeaderFormatThatEndsItsGoroutine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory, broker, log := outboxtest.NewMemory(), new(outboxtest.FakePublisher), new(lines)
		enqueueIDs(t, memory, "a1", "b1", "b2", "c1", "-1")
		_, stop := start(t, relay.Config{
			Queue: memory, Publisher: broker, MaxAttempts: 2, Backoff: fixed(time.Second), Logger: log.logger(),
			HeaderFormat: func(m outbox.Stored) map[string]string {
				if m.ID == "b1" {
					runtime.Goexit()
				}
				return outbox.PlainHeaders(m)
			},
		})
		<-time.After(3 * time.Second)
		stop()
		got := arrived(broker)
		slices.Sort(got)
		if diff := cmp.Diff([]string{"-1", "a1", "c1"}, got); diff != "" {
			t.Errorf("published: %s", diff)
		}
		if got := parked(t, memory); len(got) != 2 ||
			!strings.HasPrefix(got[0], "b1 after 2 behind 0: attempt 2: relay: Config.HeaderFormat ended") {
			t.Errorf("parked %q", got)
		}
		if log.with("messages deferred") != 1 || log.with("message parked") != 1 {
			t.Errorf("want a line for each failure:\n%s", log)
		}
	})
}

// A publisher that gives no answer about its messages must not be called in a busy loop.
func TestRelayDoesNotSpinOnWhatIsNotTried(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory := outboxtest.NewMemory()
		p := &recorder{Publisher: publisherFunc(func(_ context.Context, msgs []outbox.Message) []error {
			return slices.Repeat([]error{driver.ErrNotTried}, len(msgs))
		})}
		enqueueIDs(t, memory, "a1", "b1", "c1", "d1")
		_, stop := start(t, relay.Config{Queue: memory, Publisher: p, BatchSize: 1})
		<-time.After(time.Minute)
		if n := len(p.Calls()); n < 30 || n > 300 {
			t.Errorf("%d calls in a minute", n)
		}
		stop()
		if n, err := newRelay(t, relay.Config{Queue: memory, Publisher: p}).RunOnce(t.Context()); n != 0 ||
			err != relay.ErrStalled && !errors.Is(err, relay.ErrStalled) {
			t.Errorf("RunOnce = %d, %v, want ErrStalled", n, err)
		}
	})
}
