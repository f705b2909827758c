package relay_test

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/txonce/txonce/observe"
	"github.com/txonce/txonce/outbox"
	"github.com/txonce/txonce/outbox/outboxtest"
	"github.com/txonce/txonce/outbox/relay"
)

func TestRelayPublishesWhatIsCommitted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory, broker := outboxtest.NewMemory(), &outboxtest.FakePublisher{}
		enqueueIDs(t, memory, "a1", "b1", "a2")
		_, stop := start(t, relay.Config{Queue: memory, Publisher: broker})
		enqueueIDs(t, memory, "a3", "-4")
		tx := memory.Begin()
		if err := memory.Enqueue(t.Context(), tx, msg("c1")); err != nil {
			t.Fatal(err)
		}
		tx.Rollback()
		synctest.Wait()
		got := arrived(broker)
		slices.Sort(got)
		if want := []string{"-4", "a1", "a2", "a3", "b1"}; !slices.Equal(got, want) {
			t.Errorf("published %v, want %v", got, want)
		}
		if got := stats(t, memory); got != "0 pending, 0 parked, 0 waiting" {
			t.Error(got)
		}
		stop()
	})
}

func TestRelayPublishesTheLayoutsHeaders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory, broker := outboxtest.NewMemory(), &outboxtest.FakePublisher{}
		m := msg("a1")
		m.Headers = map[string]string{"tenant": "x"}
		enqueue(t, memory, m)
		if n, err := newRelay(t, relay.Config{Queue: memory, Publisher: broker}).RunOnce(t.Context()); n != 1 ||
			err != nil {
			t.Fatalf("RunOnce = %d, %v", n, err)
		}
		got := broker.Published()[0].Message
		want := outbox.Message{ID: "a1", Topic: "orders", OrderingKey: "a", Payload: []byte("a1"), Headers: map[string]string{
			"tenant": "x", "txonce-id": "a1", "txonce-sequence": "1",
			"txonce-enqueued-at": time.Now().UTC().Format(time.RFC3339Nano),
		}}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Error(diff)
		}
	})
}

// A publisher that pipelines would put a3 on the wire before it learns that a2 is refused.
func TestRelayPublishesOneMessageOfAKeyPerCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory := outboxtest.NewMemory()
		p := &recorder{Publisher: &outboxtest.FakePublisher{}}
		enqueueIDs(t, memory, "a1", "a2", "b1", "-1", "a3", "b2", "-2")
		_, stop := start(t, relay.Config{Queue: memory, Publisher: p})
		stop()
		want := [][]string{{"a1", "b1", "-1", "-2"}, {"a2", "b2"}, {"a3"}}
		if diff := cmp.Diff(want, p.Calls()); diff != "" {
			t.Error(diff)
		}
	})
}

func TestRelayGivesAnAtomicPublisherTheWholeBatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory := outboxtest.NewMemory()
		broker := &outboxtest.FakePublisher{AllOrNothing: true}
		enqueueIDs(t, memory, "a1", "a2", "b1", "-1", "a3", "b2")
		r := newRelay(t, relay.Config{Queue: memory, Publisher: &atomicRecorder{recorder{Publisher: broker}}})
		if n, err := r.RunOnce(t.Context()); n != 6 || err != nil {
			t.Fatalf("RunOnce = %d, %v", n, err)
		}
		if diff := cmp.Diff([]string{"a1", "a2", "b1", "-1", "a3", "b2"}, arrived(broker)); diff != "" {
			t.Error(diff)
		}
	})
}

type atomicRecorder struct{ recorder }

func (*atomicRecorder) Atomic() bool { return true }

// An ordered publisher gets all messages of a key. Behind one that it refuses, the later ones of the key wait, and no
// attempt of theirs is counted. A publisher that does not promise the order gets one message of a key per call.
func TestRelayGivesAnOrderedPublisherAllOfAKey(t *testing.T) {
	for ordered, want := range map[bool][][]string{
		true:  {{"a1", "a2", "b1", "a3", "b2"}},
		false: {{"a1", "b1"}, {"a2", "b2"}},
	} {
		synctest.Test(t, func(t *testing.T) {
			memory := outboxtest.NewMemory()
			p := &orderedRecorder{recorder{Publisher: &outboxtest.FakePublisher{InOrder: ordered, Decide: func(m outbox.Message) (f outboxtest.Fate) {
				if m.ID == "a2" {
					f.Err = errRefused
				}
				return f
			}}}, ordered}
			var deferred []string
			trace := settled(observe.Retried, func(s relay.Settlement) { deferred = append(deferred, s.Message.ID) })
			enqueueIDs(t, memory, "a1", "a2", "b1", "a3", "b2")
			if n, err := newRelay(t, relay.Config{
				Queue: memory, Publisher: p, Backoff: fixed(time.Hour),
				Trace: trace,
			}).RunOnce(t.Context()); n != 3 || err != nil {
				t.Errorf("ordered %v: RunOnce = %d, %v", ordered, n, err)
			}
			if diff := cmp.Diff(want, p.Calls()); diff != "" {
				t.Errorf("ordered %v: %s", ordered, diff)
			}
			if diff := cmp.Diff([]string{"a2"}, deferred); diff != "" {
				t.Errorf("ordered %v: %s", ordered, diff)
			}
		})
	}
}

type orderedRecorder struct {
	recorder
	ordered bool
}

func (r *orderedRecorder) Ordered() bool { return r.ordered }

// The refused message is in the middle of its key: messages before it are published, messages behind it wait.
func TestRelayAtomicPublisherRefusesOneOfACall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory := outboxtest.NewMemory()
		broker := &outboxtest.FakePublisher{AllOrNothing: true, Decide: func(m outbox.Message) (f outboxtest.Fate) {
			if m.ID == "a2" {
				f.Err = outbox.Permanent(errRefused)
			}
			return f
		}}
		enqueueIDs(t, memory, "a1", "a2", "b1", "a3")
		_, stop := start(t, relay.Config{Queue: memory, Publisher: broker})
		<-time.After(time.Second)
		if diff := cmp.Diff([]string{"a1", "b1"}, arrived(broker)); diff != "" {
			t.Error(diff)
		}
		if got := stats(t, memory); got != "0 pending, 1 parked, 1 waiting" {
			t.Error(got)
		}
		stop()
	})
}

// An atomic publisher fails as a whole: one message of each key counts as failed, and not those behind it.
func TestRelayAtomicPublisherFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory := outboxtest.NewMemory()
		p := &atomicRecorder{recorder{Publisher: publisherFunc(func(_ context.Context, msgs []outbox.Message) []error {
			return slices.Repeat([]error{errRefused}, len(msgs))
		})}}
		var deferred []string
		trace := settled(observe.Retried, func(s relay.Settlement) { deferred = append(deferred, s.Message.ID) })
		enqueueIDs(t, memory, "a1", "a2", "b1", "b2", "-1")
		if n, err := newRelay(t, relay.Config{
			Queue: memory, Publisher: p, Backoff: fixed(time.Hour),
			Trace: trace,
		}).RunOnce(t.Context()); n != 0 || err != nil {
			t.Errorf("RunOnce = %d, %v", n, err)
		}
		if diff := cmp.Diff([]string{"a1", "b1", "-1"}, deferred); diff != "" {
			t.Error(diff)
		}
	})
}

// slow confirms after d.
func slow(d time.Duration) *outboxtest.FakePublisher {
	return &outboxtest.FakePublisher{Decide: func(outbox.Message) outboxtest.Fate { return outboxtest.Fate{Delay: d} }}
}

// to is the message of that id to another topic.
func to(topic, id string) outbox.Message {
	m := msg(id)
	m.Topic = topic
	return m
}

func TestRelayKeepsTheOrderOfAKeyThatSpansTwoPublishers(t *testing.T) {
	for _, atomic := range []bool{false, true} {
		t.Run(fmt.Sprintf("atomic %v", atomic), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				memory, tortoise, hare := outboxtest.NewMemory(), slow(time.Second),
					&outboxtest.FakePublisher{AllOrNothing: atomic}
				enqueue(t, memory, to("slow", "a1"), to("fast", "a2"), to("fast", "a3"), to("slow", "a4"),
					to("fast", "a5"), to("fast", "b1"))
				_, stop := start(t, relay.Config{Queue: memory, Publishers: map[string]outbox.Publisher{"slow": tortoise, "fast": hare}})
				if diff := cmp.Diff([]string{"b1"}, arrived(hare)); diff != "" {
					t.Errorf("while a1 is not confirmed: %s", diff)
				}
				<-time.After(1500 * time.Millisecond)
				if diff := cmp.Diff([]string{"b1", "a2", "a3"}, arrived(hare)); diff != "" {
					t.Errorf("while a4 is not confirmed: %s", diff)
				}
				<-time.After(time.Second)
				if diff := cmp.Diff([]string{"b1", "a2", "a3", "a5"}, arrived(hare)); diff != "" {
					t.Error(diff)
				}
				if diff := cmp.Diff([]string{"a1", "a4"}, arrived(tortoise)); diff != "" {
					t.Error(diff)
				}
				stop()
			})
		})
	}
}

func TestRelayPublishersDoNotWaitForEachOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory, tortoise, hare := outboxtest.NewMemory(), slow(time.Second), &outboxtest.FakePublisher{}
		enqueue(t, memory, to("slow", "s1"), to("fast", "f1"), to("fast", "f2"), to("fast", "f3"))
		_, stop := start(t, relay.Config{Queue: memory, Publisher: hare, Publishers: map[string]outbox.Publisher{"slow": tortoise}})
		if diff := cmp.Diff([]string{"f1", "f2", "f3"}, arrived(hare)); diff != "" {
			t.Errorf("at once: %s", diff)
		}
		stop()
		if diff := cmp.Diff([]string{"s1"}, arrived(tortoise)); diff != "" {
			t.Error(diff)
		}
	})
}

// One Publisher of several topics gets one call, also if it is of a type that cannot be compared.
func TestRelayPublisherOfSeveralTopics(t *testing.T) {
	for _, test := range []struct {
		name  string
		wrap  func(p outbox.Publisher) outbox.Publisher
		calls int
	}{
		{"the same pointer", func(p outbox.Publisher) outbox.Publisher { return p }, 1},
		{"not comparable", func(p outbox.Publisher) outbox.Publisher { return publisherFunc(p.Publish) }, 2},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				memory, p := outboxtest.NewMemory(), &recorder{Publisher: &outboxtest.FakePublisher{}}
				enqueue(t, memory, to("x", "a1"), to("y", "b1"))
				r := newRelay(t, relay.Config{Queue: memory, Publishers: map[string]outbox.Publisher{"x": test.wrap(p), "y": test.wrap(p)}})
				if n, err := r.RunOnce(t.Context()); n != 2 || err != nil {
					t.Fatalf("RunOnce = %d, %v", n, err)
				}
				if got := len(p.Calls()); got != test.calls {
					t.Errorf("%d calls %v, want %d", got, p.Calls(), test.calls)
				}
			})
		})
	}
}

// The type of a struct around a func can be compared, and its value cannot.
func TestRelayPublishersThatCannotBeCompared(t *testing.T) {
	defer func() {
		if v := recover(); v != nil {
			t.Errorf("New panics: %v", v)
		}
	}()
	wrapped := struct{ outbox.Publisher }{publisherFunc(new(outboxtest.FakePublisher).Publish)}
	newRelay(t, relay.Config{Queue: outboxtest.NewMemory(), Publishers: map[string]outbox.Publisher{"x": wrapped, "y": wrapped}})
}

// Many more messages than a batch has, of few keys, with all workers: order and completeness.
func TestRelayManyBatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory := outboxtest.NewMemory()
		broker := slow(time.Millisecond)
		var msgs []outbox.Message
		for i := range 1000 {
			msgs = append(msgs, msg("k"+strings.Repeat("x", i%37)+strconv.Itoa(i)))
		}
		enqueue(t, memory, msgs...)
		_, stop := start(t, relay.Config{Queue: memory, Publisher: broker, BatchSize: 20})
		<-time.After(5 * time.Second)
		last := map[string]int64{}
		for _, m := range broker.Published() {
			seq, err := strconv.ParseInt(m.Headers[outbox.HeaderSequence], 10, 64)
			if err != nil || seq <= last[m.OrderingKey] {
				t.Fatalf("%s: sequence %d after %d, %v", m.ID, seq, last[m.OrderingKey], err)
			}
			last[m.OrderingKey] = seq
		}
		if got := len(broker.Published()); got != 1000 {
			t.Errorf("%d published, want 1000, each once", got)
		}
		stop()
	})
}

// With a full outbox all workers are busy: a batch must leave shards to the others.
func TestRelayWorkersShareTheShards(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory := &outboxtest.Memory{Shards: 8} // the first 100 messages are of all of them
		var msgs []outbox.Message
		for i := range 4000 {
			msgs = append(msgs, outbox.Message{ID: strconv.Itoa(i), Topic: "orders"})
		}
		enqueue(t, memory, msgs...)
		began := time.Now()
		_, stop := start(t, relay.Config{
			Queue: memory, Publisher: slow(100 * time.Millisecond), BatchSize: 100,
			Workers: 4,
		})
		for stats(t, memory) != "0 pending, 0 parked, 0 waiting" {
			<-time.After(10 * time.Millisecond)
		}
		if took := time.Since(began); took > 1500*time.Millisecond {
			// 40 batches of 0.1 s by 4 workers: 1 s; by one: 4 s
			t.Errorf("4000 messages took %v, as if not all workers had worked", took)
		}
		stop()
	})
}

// A batch is bounded by bytes too. Messages that did not fit are leased at once, and not at the next regular poll.
func TestRelayBatchBytes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory, p := outboxtest.NewMemory(), &recorder{Publisher: &outboxtest.FakePublisher{}}
		for _, id := range []string{"a1", "a2", "a3"} {
			m := msg(id)
			m.Payload = make([]byte, 600)
			enqueue(t, memory, m)
		}
		_, stop := start(t, relay.Config{Queue: memory, Publisher: p, BatchBytes: 1000, PollMin: time.Hour})
		defer stop()
		if diff := cmp.Diff([][]string{{"a1"}, {"a2"}, {"a3"}}, p.Calls()); diff != "" {
			t.Error(diff)
		}
	})
}

func TestRelayRunsOnceAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, stop := start(t, relay.Config{Queue: outboxtest.NewMemory(), Publisher: &outboxtest.FakePublisher{}})
		if err := r.Run(t.Context()); err != relay.ErrRunning {
			t.Errorf("a second Run = %v, want ErrRunning", err)
		}
		if _, err := r.RunOnce(t.Context()); err != relay.ErrRunning {
			t.Errorf("RunOnce beside Run = %v, want ErrRunning", err)
		}
		stop()
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := r.Run(ctx); err != nil {
			t.Errorf("Run again after it has ended = %v", err)
		}
	})
}
