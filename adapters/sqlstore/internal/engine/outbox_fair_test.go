package engine_test

import (
	"slices"
	"testing"

	"github.com/txonce/txonce/adapters/sqlstore/internal/engine"
	"github.com/txonce/txonce/outbox/driver"
)

type message struct{ seq int64 }

func (m message) Place() (seq int64, size int) { return m.seq, 10 }

// Between two reads the first message of a shard becomes due, and so does the last one, which waited behind it. The
// last one is leased only with the first one before it.
func TestLeaseFairlyReadsAShardFromItsBeginning(t *testing.T) {
	reads := 0
	read := func(shards []int, part int) (map[int][]message, error) {
		reads++
		found := map[int][]message{}
		for _, shard := range shards {
			first, last := int64(1), int64(2)
			if shard == 0 {
				if first, last = 1, 30; reads == 1 {
					first, last = 2, 29
				}
			}
			for seq := first; seq <= last && len(found[shard]) < part; seq++ {
				found[shard] = append(found[shard], message{seq})
			}
		}
		return found, nil
	}
	for _, tt := range []struct {
		name  string
		want  driver.Want
		reads int
		first int64 // of shard 0
		n     int   // in all
	}{
		{"everything fits", driver.Want{Limit: 40}, 2, 1, 32},
		{"the limit is reached", driver.Want{Limit: 6}, 2, 1, 6},
		{"the bytes are spent at the first read", driver.Want{Limit: 40, Bytes: 55}, 1, 2, 5},
		{"all shards are read whole at once", driver.Want{Limit: 1000}, 1, 2, 30},
	} {
		reads = 0
		chosen, err := engine.LeaseFairly([]int{0, 1}, tt.want, read)
		if err != nil || len(chosen) != tt.n || reads != tt.reads || chosen[0].seq != tt.first {
			t.Errorf("%s: %v after %d reads (%v), want %d messages from %d on, after %d", tt.name, chosen, reads, err,
				tt.n, tt.first, tt.reads)
		}
		if i := slices.Index(chosen, message{30}); i >= 0 && chosen[0].seq != 1 {
			t.Errorf("%s: message 30 overtakes message 1", tt.name)
		}
	}
}
