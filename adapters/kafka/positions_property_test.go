package kafka_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/IBM/sarama"

	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/dedup/deduptest"
)

// TestDatabaseGoesBackAgainAndAgain takes commits away at random times while messages arrive, members join and leave,
// and handlers fail: in the end each message has one effect.
func TestDatabaseGoesBackAgainAndAgain(t *testing.T) {
	eachProtocol(t, func(t *testing.T, strategy sarama.BalanceStrategy) {
		seed := rand.Uint64()
		t.Logf("seed %d", seed)
		random := rand.New(rand.NewPCG(seed, 0))
		g := startKfake(t).group(t, 3)
		e := &effects{db: deduptest.NewDatabase()}
		e.before = func(context.Context, *consumer.Message) error {
			if rand.IntN(50) == 0 {
				return fmt.Errorf("now and then a handler fails")
			}
			return nil
		}
		members := []*member{e.join(t, g, "billing", strategy)}
		g.awaitConsumed(t) // a database from before the first start would be refused
		n := 0
		for range 40 {
			var msgs []*sarama.ProducerMessage
			for range random.IntN(40) {
				msgs = append(msgs, text(int32(random.IntN(3)), some(n, n+1)...)...)
				n++
			}
			if len(msgs) > 0 {
				g.produce(t, msgs...)
			}
			switch snapshot := e.db.Snapshot(); random.IntN(6) {
			case 0, 1:
				elapse(time.Duration(random.IntN(300)) * time.Millisecond)
				e.db.Promote(snapshot)
			case 2: // a backup is older, because positions alone notice it
				elapse(time.Second)
				e.db.Restore(snapshot)
			case 3:
				if len(members) < 3 {
					members = append(members, e.join(t, g, "billing", strategy))
				}
			case 4:
				i := random.IntN(len(members))
				if err := members[i].stop(); err != nil {
					t.Fatal(err)
				}
				if members = append(members[:i:i], members[i+1:]...); len(members) == 0 {
					members = append(members, e.join(t, g, "billing", strategy))
				}
			default:
				elapse(time.Duration(random.IntN(300)) * time.Millisecond)
			}
		}
		e.await(t, "billing", some(0, n)...)
		for _, m := range members {
			if err := m.stop(); err != nil {
				t.Error(err)
			}
		}
		events, messages := e.wentBack()
		t.Logf("%d messages, of which %d were read again in %d rewinds", n, messages, events)
		e.await(t, "billing", some(0, n)...)
	})
}
