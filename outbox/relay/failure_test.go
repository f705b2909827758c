package relay_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/txonce/txonce/outbox"
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
		lines = append(lines, fmt.Sprintf("%s after %d behind %d: %s", p.ID, p.Attempts, p.Behind, p.Cause))
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
		if got := arrived(broker); slices.Contains(got, "a2") || slices.Contains(got, "a3") || slices.Contains(got, "a4") || !slices.Contains(got, "b3") {
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
		_, stop := start(t, relay.Config{Queue: memory, Publisher: broker, Backoff: fixed(7777 * time.Millisecond), PollMax: time.Minute})
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
			"a2 after 3 behind 0: attempt 3: the broker refuses this message", "a3 after 0 behind 2: stands behind message 2 of its key",
			"a4 after 0 behind 2: stands behind message 2 of its key",
		}},
		{outbox.ParkKey, []string{"a1"}, []string{
			"a2 after 3 behind 0: attempt 3: the broker refuses this message", "a3 after 0 behind 2: stands behind message 2 of its key",
			"a4 after 0 behind 2: stands behind message 2 of its key",
		}},
		{outbox.SkipMessage, []string{"a1", "a3", "a4"}, []string{"a2 after 3 behind 0: attempt 3: the broker refuses this message"}},
	} {
		t.Run(fmt.Sprintf("ParkPolicy %d", test.keep), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				memory, broker, log := outboxtest.NewMemory(), refusing("a2", errRefused, -2), new(lines)
				var told []error
				trace := &relay.Trace{Parked: func(_ context.Context, e relay.Event) {
					if e.Message.ID != "a2" || e.Relay != "r" {
						t.Errorf("Parked told of %q by %q", e.Message.ID, e.Relay)
					}
					told = append(told, e.Err)
				}}
				enqueueIDs(t, memory, "a1", "a2", "a3")
				_, stop := start(t, relay.Config{Name: "r", Queue: memory, Publisher: broker, MaxAttempts: 3, Backoff: fixed(time.Second), ParkPolicy: test.keep, Logger: log.logger(), Trace: trace})
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
		memory, broker := outboxtest.NewMemory(), refusing("a1", fmt.Errorf("wrapped: %w", outbox.Permanent(errRefused)), -2)
		enqueueIDs(t, memory, "a1", "b1")
		if n, err := newRelay(t, relay.Config{Queue: memory, Publisher: broker}).RunOnce(t.Context()); n != 1 || err != nil {
			t.Errorf("RunOnce = %d, %v: what is refused is no error of the relay's", n, err)
		}
		if diff := cmp.Diff([]string{"a1 after 1 behind 0: wrapped: the broker refuses this message"}, parked(t, memory)); diff != "" {
			t.Error(diff)
		}
	})
}

// The broker is down for a minute, and there is no other publisher: no attempt is counted, nothing is written, and the publisher
// is called now and then.
func TestRelayCoolsDownWhenItsPublisherIsUnavailable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory, broker, log := outboxtest.NewMemory(), new(outboxtest.FakePublisher), new(lines)
		p := &recorder{Publisher: broker}
		var rests, told atomic.Int64
		trace := &relay.Trace{
			Resting:  func(_ context.Context, e relay.Event) { rests.Add(1) },
			Deferred: func(context.Context, relay.Event) { told.Add(1) },
			Parked:   func(context.Context, relay.Event) { told.Add(1) },
		}
		broker.Down(0)
		for i := range 100 {
			enqueueIDs(t, memory, fmt.Sprintf("k%c1", 'a'+i%26), fmt.Sprintf("-%d", i))
		}
		_, stop := start(t, relay.Config{Queue: memory, Publisher: p, Logger: log.logger(), Trace: trace, MaxAttempts: 1, BatchSize: 10})
		<-time.After(time.Minute)
		if n := len(p.Calls()); n < 10 || n > 100 {
			t.Errorf("%d calls in a minute", n)
		}
		if told.Load() != 0 || stats(t, memory) != "200 pending, 0 parked, 0 waiting" {
			t.Errorf("%d deferred or parked; %s", told.Load(), stats(t, memory))
		}
		if int(rests.Load()) != len(p.Calls()) {
			t.Errorf("%d rests of %d calls", rests.Load(), len(p.Calls()))
		}
		broker.Up()
		<-time.After(10 * time.Second)
		if got := stats(t, memory); got != "0 pending, 0 parked, 0 waiting" {
			t.Error(got)
		}
		if log.with("is unavailable and gets no messages") != 1 || log.with("is available again") != 1 {
			t.Errorf("want two lines:\n%s", log)
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
			enqueue(t, memory, to("up", fmt.Sprintf("u%d", i)), to("down", fmt.Sprintf("d%d", i)), to("down", fmt.Sprintf("m%d", i)), to("up", fmt.Sprintf("m%d-", i)), to("down", fmt.Sprintf("-%d", i)))
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

// A part of the broker is down (a partition without leader): the keys of that part are held back, and the relay goes on.
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

func TestRelayWithoutPublisherForATopic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory, broker := outboxtest.NewMemory(), new(outboxtest.FakePublisher)
		enqueue(t, memory, to("x", "a1"), to("y", "b1"), to("x", "b2"))
		log := new(lines)
		_, stop := start(t, relay.Config{Queue: memory, Publishers: map[string]outbox.Publisher{"x": broker}, MaxAttempts: 2, Logger: log.logger()})
		<-time.After(10 * time.Minute)
		if diff := cmp.Diff([]string{"a1"}, arrived(broker)); diff != "" {
			t.Error(diff)
		}
		st, err := memory.Stats(t.Context())
		if of := st.Topics["y"]; err != nil || st.Pending != 2 || of.Failing != 1 || of.Cause != `relay: no publisher for topic "y"` {
			t.Errorf("%+v, error %v; want both pending, and why", st, err)
		}
		if n := log.with(`topic=y`); n < 8 || n > 11 {
			t.Errorf("%d lines in ten minutes, want one a minute:\n%s", n, log)
		}
		stop()
	})
}

// When a publisher does not answer as it must, each message of the call counts as failed, because it is unknown which of them
// arrived. The error names the publisher.
func TestRelayPublisherThatDoesNotAnswer(t *testing.T) {
	for _, test := range []struct {
		name  string
		p     publisherFunc
		cause string
	}{
		{"panics", func(context.Context, []outbox.Message) []error { panic(outbox.Permanent(errRefused)) }, `panicked: the broker refuses this message`},
		{"ends its goroutine", func(context.Context, []outbox.Message) []error { runtime.Goexit(); return nil }, `ended its goroutine instead of answering`},
		{"too few answers", func(context.Context, []outbox.Message) []error { return make([]error, 1) }, `gave 1 answers for 2 messages`},
		{"too many answers", func(context.Context, []outbox.Message) []error { return make([]error, 3) }, `gave 3 answers for 2 messages`},
		{"no answers", func(context.Context, []outbox.Message) []error { return []error{} }, `gave 0 answers for 2 messages`},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				memory := outboxtest.NewMemory()
				enqueueIDs(t, memory, "a1", "b1")
				var deferred []string
				trace := &relay.Trace{Deferred: func(_ context.Context, e relay.Event) { deferred = append(deferred, e.Message.ID+" "+e.Err.Error()) }}
				cfg := relay.Config{Queue: memory, Publisher: test.p, MaxAttempts: 2, Backoff: fixed(time.Minute), Trace: trace}
				if n, err := newRelay(t, cfg).RunOnce(t.Context()); n != 0 || err != nil {
					t.Fatalf("RunOnce = %d, %v", n, err)
				}
				if len(deferred) != 2 || !strings.Contains(deferred[0], "relay_test.publisherFunc") || !strings.HasSuffix(deferred[1], test.cause) {
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

// A panic of the HeaderFormat is a failure of its message. The rest of its call is not published, because the message might be in
// front of others.
func TestRelayLayoutThatPanics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, atomic := range []bool{false, true} {
			memory, broker := outboxtest.NewMemory(), &outboxtest.FakePublisher{AllOrNothing: atomic}
			enqueueIDs(t, memory, "a1", "a2", "b1")
			r := newRelay(t, relay.Config{Queue: memory, Publisher: broker, MaxAttempts: 1, HeaderFormat: func(m outbox.Leased) map[string]string {
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

// A publisher that gives no answer about its messages must not be called in a busy loop.
func TestRelayDoesNotSpinOnWhatIsNotTried(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory := outboxtest.NewMemory()
		p := &recorder{Publisher: publisherFunc(func(_ context.Context, msgs []outbox.Message) []error {
			return slices.Repeat([]error{outbox.ErrNotTried}, len(msgs))
		})}
		enqueueIDs(t, memory, "a1", "b1", "c1", "d1")
		_, stop := start(t, relay.Config{Queue: memory, Publisher: p, BatchSize: 1})
		<-time.After(time.Minute)
		if n := len(p.Calls()); n < 30 || n > 300 {
			t.Errorf("%d calls in a minute", n)
		}
		stop()
		if n, err := newRelay(t, relay.Config{Queue: memory, Publisher: p}).RunOnce(t.Context()); n != 0 || err != relay.ErrStalled && !errors.Is(err, relay.ErrStalled) {
			t.Errorf("RunOnce = %d, %v, want ErrStalled", n, err)
		}
	})
}

// A publisher that answers at once that the broker is away, as one does without a circuit breaker of its own: the relay waits
// longer and longer between its calls, counts no attempt, and publishes everything once the broker is
// back. A part of the broker that stays away does not keep the relay from finding out.
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
						if n, _ := strconv.Atoi(m.Key); down || n < test.gone {
							errs[i] = &outbox.UnavailableError{Err: errRefused}
						}
					}
					return errs
				})
				if test.atomic {
					p = allOrNothing{p}
				}
				memory, log := outboxtest.NewMemory(), new(lines)
				trace := &relay.Trace{Deferred: func(_ context.Context, e relay.Event) {
					mu.Lock()
					defer mu.Unlock()
					counted += e.Message.Attempts
				}}
				var msgs []outbox.Message
				for i := range 200 {
					for n := range 2 {
						msgs = append(msgs, outbox.Message{ID: fmt.Sprintf("%d-%d", i, n), Topic: "orders", Key: strconv.Itoa(i)})
					}
				}
				enqueue(t, memory, msgs...)
				_, stop := start(t, relay.Config{Queue: memory, Publisher: p, Publishers: test.topics, Logger: log.logger(), Trace: trace, MaxAttempts: 1, Workers: 1})
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
				if got, want := stats(t, memory), fmt.Sprintf("%d pending, 0 parked, 0 waiting", 2*test.gone); got != want {
					t.Errorf("a minute after the broker came back: %s, want %s", got, want)
				}
				if counted != 0 {
					t.Errorf("%d attempts were counted", counted)
				}
				if test.gone == 0 && (log.with("is unavailable and gets no messages") != 1 || log.with("is available again") != 1) {
					t.Errorf("want one line at the start of the outage and one at its end:\n%s", log)
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

// Most of what is pending belongs to a part of the broker that is away. Messages of the other parts must not wait for it.
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
			enqueue(t, memory, outbox.Message{ID: id, Key: id, Topic: "away"})
		}
		_, stop := start(t, relay.Config{Queue: memory, Publisher: publisher})
		defer stop()
		<-time.After(10 * time.Second)
		for i := range 20 {
			id := fmt.Sprintf("there-%d", i)
			mu.Lock()
			enqueued[id] = time.Now()
			mu.Unlock()
			enqueue(t, memory, outbox.Message{ID: id, Key: id, Topic: "there"})
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
			enqueue(t, memory, outbox.Message{ID: "hangs-" + id, Key: id, Topic: "hangs"}, outbox.Message{ID: "there-" + id, Key: "there-" + id, Topic: "there"})
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
		_, stop := start(t, relay.Config{Queue: memory, Publisher: silent(&calls), LeaseTTL: 5 * time.Second, Logger: log.logger()})
		defer stop()
		<-time.After(5 * time.Minute)
		if n := calls.Load(); n < 5 || n > 30 {
			t.Errorf("%d calls in 5 minutes, want cooldowns up to 30 s", n)
		}
		if log.with("is unavailable and gets no messages") != 1 {
			t.Errorf("want one line at the start of the outage:\n%s", log)
		}
	})
}
