package relay_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/txonce/txonce/outbox/driver"
	"github.com/txonce/txonce/outbox/outboxtest"
	"github.com/txonce/txonce/outbox/relay"
)

// A relay has work for all of its shards all the time. A second relay that joins it has half of them after three of its
// Renews since the first relay noticed it, within 5 s at most.
func TestRelayJoinsABusyOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory := outboxtest.NewMemory()
		for i := range 30_000 {
			enqueueIDs(t, memory, fmt.Sprintf("%s%d", key(i%500), i))
		}
		_, stop := start(t, relay.Config{
			Name: "busy", Queue: memory, Publisher: slow(50 * time.Millisecond),
			BatchSize: 20,
		})
		<-time.After(2 * time.Second)
		_, stopSecond := start(t, relay.Config{
			Name: "joins", Queue: memory, Publisher: slow(50 * time.Millisecond),
			BatchSize: 20,
		})
		<-time.After(8 * time.Second)
		st, err := memory.Stats(t.Context())
		if err != nil || len(st.Relays) != 2 || st.Relays[0].Shards != 32 || st.Relays[1].Shards != 32 ||
			st.Pending < 1000 {
			t.Errorf("%+v, %v: want a backlog, and relays with 32 shards each", st, err)
		}
		stop()
		stopSecond()
	})
}

// key is made of letters, as msg wants them.
func key(i int) string { return string([]byte{byte('a' + i%26), byte('a' + i/26)}) }

// Relays that are killed right after their start do not take shards from a healthy relay, and do not delay messages.
func TestRelayBesideOnesThatDieAtTheirStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory, broker := outboxtest.NewMemory(), slow(time.Millisecond)
		least := outboxtest.DefaultShards
		trace := &relay.Trace{Lease: func(_ context.Context, e relay.LeaseEvent) {
			if e.Kind == relay.LeaseRenewed || e.Kind == relay.LeaseTaken {
				least = min(least, e.Hold.Shards)
			}
		}}
		_, stop := start(t, relay.Config{Name: "healthy", Queue: memory, Publisher: broker, Trace: trace})
		enqueued := map[string]time.Time{}
		for i := range 7000 {
			if i%1000 == 500 {
				s, err := memory.Open(t.Context(), driver.SessionOptions{Name: "dies", TTL: relay.DefaultLeaseTTL})
				if err != nil {
					t.Fatal(err)
				}
				if _, err := s.Renew(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			<-time.After(10 * time.Millisecond)
			id := fmt.Sprintf("%s%d", key(rand.IntN(500)), i)
			enqueued[id] = time.Now()
			enqueueIDs(t, memory, id)
		}
		<-time.After(time.Second)
		synctest.Wait()
		var late time.Duration
		for _, p := range broker.Published() {
			late = max(late, p.At.Sub(enqueued[p.ID]))
		}
		if got := len(broker.Published()); got != len(enqueued) || late > 100*time.Millisecond ||
			least != outboxtest.DefaultShards {
			t.Errorf("%d of %d messages, the latest after %v; the healthy relay held %d shards at the least", got,
				len(enqueued), late, least)
		}
		stop()
	})
}
