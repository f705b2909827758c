package sqlstore_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/txonce/txonce/outbox"
	"github.com/txonce/txonce/outbox/driver"
)

// One settlement holds back a topic among the first rows of a shard only: what stands far behind is left alone, however
// many rows there are.
func TestOneSettlementLooksAtSomeRowsOfAShard(t *testing.T) {
	outboxes(t, func(t *testing.T, n *node) {
		s := open(t, n, time.Minute)
		shards := renew(t, s).TotalShards
		var keys []string // of one shard
		for i := 0; len(keys) < 4; i++ {
			key := fmt.Sprint("k", i)
			if driver.Shard(&outbox.Message{OrderingKey: key}, shards) == 1 {
				keys = append(keys, key)
			}
		}
		away := func(key string) outbox.Message {
			return outbox.Message{ID: "away-" + key, Topic: "away", OrderingKey: key, Payload: []byte("x")}
		}
		msgs := []outbox.Message{away(keys[0]), away(keys[1])}
		for i := range 1100 {
			msgs = append(msgs, outbox.Message{
				ID: fmt.Sprint("t-", i), Topic: "t", OrderingKey: keys[2],
				Payload: []byte("x"),
			})
		}
		enqueue(t, n, append(msgs, away(keys[3]))...)
		first, err := s.tryLease(t.Context(), driver.Want{Limit: 1})
		if err != nil || len(first) != 1 || first[0].ID != "away-"+keys[0] {
			t.Fatalf("leased %v, %v", first, err)
		}
		list := outcomes(driver.Deferred, first...)
		list[0].Delay, list[0].WholeTopic, list[0].BrokerFault = time.Hour, true, true
		settle(t, s, list)
		var held int
		if err := n.db.QueryRowContext(t.Context(), `SELECT count(*) FROM outbox_held`).Scan(&held); err != nil ||
			held != 2 {
			t.Errorf("%d keys are held back, %v: want the 2 whose messages are among the first rows", held, err)
		}
	})
}
