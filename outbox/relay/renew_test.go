package relay_test

import (
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/txonce/txonce/outbox/driver"
	"github.com/txonce/txonce/outbox/outboxtest"
	"github.com/txonce/txonce/outbox/relay"
)

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
						return fmt.Errorf("wrapped: %w", driver.ErrLeaseLost)
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
			_, stop := start(t, relay.Config{
				Name: started.name, Queue: memory, Publisher: broker,
				Logger: started.log.logger(),
			})
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
