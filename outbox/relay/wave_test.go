package relay_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/txonce/txonce/observe"
	"github.com/txonce/txonce/outbox"
	"github.com/txonce/txonce/outbox/driver"
	"github.com/txonce/txonce/outbox/outboxtest"
	"github.com/txonce/txonce/outbox/relay"
)

// One key has thousands of messages, and each call to the broker takes 20 ms. Messages of other keys do not wait for
// the key's batch.
func TestRelayHotKeyHoldsUpNoOtherKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const hot, strangers = 5000, 1000
		memory, broker := outboxtest.NewMemory(), slow(20*time.Millisecond)
		var busy []string
		for i := range hot {
			busy = append(busy, fmt.Sprint("hot", i))
		}
		enqueueIDs(t, memory, busy...)
		shard := driver.Shard(&outbox.Message{OrderingKey: "hot"}, outboxtest.DefaultShards)
		_, stop := start(t, relay.Config{Queue: memory, Publisher: broker})
		enqueued := map[string]time.Time{}
		for i := range strangers {
			<-time.After(5 * time.Millisecond)
			m := outbox.Message{
				ID: fmt.Sprint("stranger", i), Topic: "orders",
				OrderingKey: fmt.Sprint("stranger", i%500),
			}
			if driver.Shard(&m, outboxtest.DefaultShards) != shard { // behind the hot key's messages in their shard
				enqueued[m.ID] = time.Now()
				enqueue(t, memory, m)
			}
		}
		<-time.After(hot * 40 * time.Millisecond)
		var late time.Duration
		last := -1
		for _, p := range broker.Published() {
			if began, stranger := enqueued[p.ID]; stranger {
				late = max(late, p.At.Sub(began))
				continue
			}
			n := 0
			if _, err := fmt.Sscanf(p.ID, "hot%d", &n); err != nil || n != last+1 {
				t.Fatalf("%s was published after hot%d", p.ID, last)
			}
			last = n
		}
		if got := len(broker.Published()); got != hot+len(enqueued) || last != hot-1 {
			t.Errorf("%d publications, want %d; the last of the hot key was %d", got, hot+len(enqueued), last)
		}
		if late > 300*time.Millisecond {
			t.Errorf("a message of another key waited for %v, want at most 300 ms", late)
		}
		stop()
	})
}

// The first wave of a batch is always published, however late it begins. In a slow batch the later waves are left to
// the next batch.
func TestRelayGivesBackTheRestOfASlowBatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory := outboxtest.NewMemory()
		p := &recorder{Publisher: slow(70 * time.Millisecond)}
		enqueueIDs(t, memory, "a1", "a2", "a3", "a4", "b1")
		returned := 0
		trace := settled(observe.Held, func(relay.Settlement) { returned++ })
		if n, err := newRelay(t, relay.Config{Queue: memory, Publisher: p, Trace: trace}).RunOnce(t.Context()); n != 5 || err != nil {
			t.Errorf("RunOnce = %d, %v", n, err)
		}
		// 0 and 70 ms; at 140 ms the rest is given back.
		if got := fmt.Sprint(p.Calls(), returned); got != "[[a1 b1] [a2] [a3] [a4]] 2" {
			t.Errorf("calls and messages given back: %s", got)
		}
	})
}

// RunOnce publishes all that is due, also of a key with many messages, which a relay that goes on holds back from time
// to time.
func TestRunOncePublishesAHotKeyWhole(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const hot = 1000
		memory := outboxtest.NewMemory()
		var busy []string
		for i := range hot {
			busy = append(busy, fmt.Sprint("hot", i))
		}
		enqueueIDs(t, memory, busy...)
		r, err := relay.New(relay.Config{Queue: memory, Publisher: slow(5 * time.Millisecond)})
		if err != nil {
			t.Fatal(err)
		}
		if n, err := r.RunOnce(t.Context()); n != hot || err != nil {
			t.Errorf("RunOnce = %d, %v; want %d messages of the key", n, err, hot)
		}
	})
}
