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

	"github.com/txonce/txonce/outbox"
	"github.com/txonce/txonce/outbox/driver"
	"github.com/txonce/txonce/outbox/outboxtest"
	"github.com/txonce/txonce/outbox/relay"
)

// hanging does not return before it is released, even if its context has ended. Its messages arrive then.
type hanging struct {
	outboxtest.FakePublisher
	release chan struct{}
	calls   atomic.Int64
}

func (h *hanging) Publish(_ context.Context, msgs []outbox.Message) []error {
	h.calls.Add(1)
	<-h.release
	return h.FakePublisher.Publish(context.Background(), msgs)
}

// A publisher that breaks its contract and does not return by its deadline is named. LeaseTTL later its relay gives up
// its shards, and takes none before the publisher has returned. What it publishes late is a repeat.
func TestRelayGivesUpForAPublisherThatDoesNotReturn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 1000
		memory, log, queue := outboxtest.NewMemory(), new(lines), new(faulty)
		queue.Queue = memory
		stuck, broker := &hanging{release: make(chan struct{})}, new(outboxtest.FakePublisher)
		for i := range n {
			enqueueIDs(t, memory, fmt.Sprintf("%s%d", string(rune('a'+i%26)), i))
		}
		var lost []error
		trace := leaseLost(func(err error) { lost = append(lost, err) })
		_, stop := start(t, relay.Config{
			Name: "stuck", Queue: queue, Publisher: stuck, Logger: log.logger(),
			Trace: trace,
		})
		_, stopHealthy := start(t, relay.Config{Name: "healthy", Queue: memory, Publisher: broker})
		<-time.After(relay.DefaultPublishTimeout + relay.DefaultLeaseTTL/5)
		synctest.Wait()
		if log.with("publisher=*relay_test.hanging") != int(stuck.calls.Load()) ||
			log.with("has not returned by its deadline") != int(stuck.calls.Load()) {
			t.Errorf("want a line for each of %d calls, which names the publisher:\n%s", stuck.calls.Load(), log)
		}
		<-time.After(relay.DefaultLeaseTTL + 10*time.Second)
		synctest.Wait()
		if got := len(broker.Published()); got != n || stats(t, memory) != "0 pending, 0 parked, 0 waiting" {
			t.Errorf("56 s after a publisher began to hang the healthy relay has published %d of %d messages; %s", got,
				n, stats(t, memory))
		}
		if len(lost) != 1 || !errors.Is(lost[0], driver.ErrLeaseLost) || log.with("takes no shards until") != 1 {
			t.Errorf("leases lost: %v; log:\n%s", lost, log)
		}
		<-time.After(time.Hour)
		if st, err := memory.Stats(t.Context()); err != nil || len(st.Relays) != 1 || st.Relays[0].Shards != 64 ||
			queue.count("open") != 1 {
			t.Errorf("%+v, %v; %d sessions: want the stuck relay to stay away for as long as its publisher", st, err,
				queue.count("open"))
		}
		close(stuck.release)
		<-time.After(10 * time.Second)
		if st, err := memory.Stats(t.Context()); err != nil || len(st.Relays) != 2 || st.Relays[0].Shards != 32 {
			t.Errorf("%+v, %v: want both relays with 32 shards each, once the publisher has returned", st, err)
		}
		known := map[string]bool{}
		for _, p := range broker.Published() {
			known[p.ID] = true
		}
		for _, p := range stuck.Published() {
			if !known[p.ID] || p.Headers[outbox.HeaderID] != p.ID {
				t.Errorf("%q came late: want a repeat that carries its ID", p.ID)
			}
		}
		stop()
		stopHealthy()
	})
}

// Run returns when its context has ended, also if a publisher never does.
func TestRelayStopsThoughAPublisherDoesNotReturn(t *testing.T) {
	const ttl, margin = 10 * time.Second, 2 * time.Second
	for _, test := range []struct {
		name  string
		after time.Duration // of the hang, when Run's context ends
		want  time.Duration
	}{
		{"at once", 0, ttl + margin},
		{"after the deadline", 6 * time.Second, 5*time.Second + ttl - 6*time.Second + margin},
		{"after the session was given up", time.Minute, 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				memory, stuck := outboxtest.NewMemory(), &hanging{release: make(chan struct{})}
				enqueueIDs(t, memory, "a1", "a2")
				_, stop := start(t, relay.Config{
					Queue: memory, Publisher: stuck, LeaseTTL: ttl,
					PublishTimeout: 5 * time.Second,
				})
				<-time.After(test.after)
				began := time.Now()
				stop()
				if took := time.Since(began); took != test.want {
					t.Errorf("Run returned after %v, want %v", took, test.want)
				}
				if st, err := memory.Stats(t.Context()); err != nil || st.Pending != 2 || len(st.Relays) != 0 {
					t.Errorf("%+v, %v: want both messages pending, and their shards free", st, err)
				}
				close(stuck.release)
				synctest.Wait()
				if diff := cmp.Diff([]string{"a1"}, arrived(&stuck.FakePublisher)); diff != "" {
					t.Error(diff)
				}
			})
		})
	}
}

func TestRelayRunOnceThoughAPublisherDoesNotReturn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory, stuck := outboxtest.NewMemory(), &hanging{release: make(chan struct{})}
		enqueueIDs(t, memory, "a1")
		began := time.Now()
		n, err := newRelay(t, relay.Config{Queue: memory, Publisher: stuck}).RunOnce(t.Context())
		if took, want := time.Since(began), relay.DefaultPublishTimeout+relay.DefaultLeaseTTL*6/5; n != 0 ||
			!errors.Is(err, driver.ErrLeaseLost) || took != want {
			t.Errorf("RunOnce = %d, %v after %v, want ErrLeaseLost after %v", n, err, took, want)
		}
		close(stuck.release)
	})
}

// The other publishers of a relay are not cut off: the messages that they have confirmed are settled.
func TestRelaySettlesBesideAPublisherThatDoesNotReturn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory, stuck, broker := outboxtest.NewMemory(), &hanging{release: make(chan struct{})},
			new(outboxtest.FakePublisher)
		_, stop := start(t, relay.Config{Queue: memory, Publisher: broker, Publishers: map[string]outbox.Publisher{"stuck": stuck}})
		enqueue(t, memory, to("stuck", "a1"))
		for i := range 30 {
			<-time.After(time.Second)
			enqueueIDs(t, memory, fmt.Sprintf("%s%d", string(rune('b'+i%20)), i))
		}
		<-time.After(9 * time.Second)
		if got := len(broker.Published()); got != 30 || stats(t, memory) != "1 pending, 0 parked, 0 waiting" {
			t.Errorf("%d of 30 messages were published before the session was given up; %s", got, stats(t, memory))
		}
		close(stuck.release)
		<-time.After(10 * time.Second)
		if got := stats(t, memory); got != "0 pending, 0 parked, 0 waiting" {
			t.Error(got)
		}
		stop()
	})
}
