package pgxstore

import (
	"github.com/txonce/txonce/outbox"
)

// lease takes queued messages of shards in held, by shard in the order of seq.
func (w *walWindow) lease(want outbox.Want, held map[int]int64) []outbox.Leased {
	w.mu.Lock()
	defer w.mu.Unlock()
	var msgs []outbox.Leased
	parts := max(want.Part, 1)
	first := w.turn % parts
	w.turn++
	size := 0
	// Each shard gives a part of the batch first, which spreads it over many keys, and then whatever there is room for.
	shards := w.idleShards(first, parts, held)
	take := func(n, most int) (room bool) {
		taken := 0
		for _, e := range w.queues[n] {
			if taken == most {
				break
			}
			if len(msgs) >= want.Limit || len(msgs) > 0 && want.Bytes > 0 && size+e.size > want.Bytes {
				w.takeOut(n, taken)
				return false
			}
			e.state, e.Token = walLeased, held[n]
			msgs = append(msgs, e.Leased)
			size += e.size
			taken++
		}
		w.takeOut(n, taken)
		return true
	}
	for _, most := range []int{(want.Limit + len(shards) - 1) / max(len(shards), 1), want.Limit} {
		for _, n := range shards {
			if !take(n, most) {
				return msgs
			}
		}
	}
	return msgs
}

// takeOut removes the first n of a shard's queue, which are leased now. The caller holds mu.
func (w *walWindow) takeOut(shard, n int) {
	clear(w.queues[shard][:n]) // not to be kept alive by the array
	w.queues[shard] = w.queues[shard][n:]
	w.leased[shard] += n
}

// idleShards lists those of a part of which nothing is leased, beginning with another one each time. The caller holds mu.
func (w *walWindow) idleShards(first, parts int, held map[int]int64) []int {
	var shards []int
	for n := first; n < len(w.queues); n += parts {
		if _, ours := held[n]; ours && w.leased[n] == 0 && len(w.queues[n]) > 0 {
			shards = append(shards, n)
		}
	}
	if len(shards) > 0 {
		cut := w.turn % len(shards)
		shards = append(shards[cut:], shards[:cut]...)
	}
	return shards
}

// taken returns the leased entry that o ends; nil: o is of the tables.
func (w *walWindow) taken(o *outbox.Outcome) *walEntry {
	w.mu.Lock()
	defer w.mu.Unlock()
	if e := w.entries[o.Seq]; e != nil && e.state == walLeased {
		return e
	}
	return nil
}

// giveBack ends the leases of entries that stay pending.
func (w *walWindow) giveBack(entries []*walEntry) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, e := range entries {
		w.leased[e.Shard]--
		w.place(e)
	}
	if len(entries) > 0 {
		w.notice()
	}
}
