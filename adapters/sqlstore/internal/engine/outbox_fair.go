package engine

import (
	"github.com/txonce/txonce/outbox/driver"
)

// LeaseFairly first reads an equal number of messages from each shard, and then more from the shards that have more,
// within want. read returns the first part due messages of each shard, ordered by number, from one snapshot of the
// shard and one time.
//
// A shard that has more is read from its first message again. If it were read only from where the last read ended,
// messages that became due or visible in between would be left out, and later messages of their keys would overtake
// them.
func LeaseFairly[M interface{ Place() (seq int64, size int) }](
	shards []int, want driver.Want, read func(shards []int, part int) (map[int][]M, error),
) (chosen []M, err error) {
	found := make(map[int][]M, len(shards))
	part := max(want.Limit/max(len(shards), 1), 1)
	for more := shards; len(more) > 0; {
		again, err := read(more, part)
		if err != nil {
			return nil, err
		}
		var full []int
		for _, shard := range more {
			if found[shard] = again[shard]; len(again[shard]) >= part {
				full = append(full, shard)
			}
		}
		room := NewRoom(want)
		chosen = fitting(shards, found, &room)
		if room.Full || len(full) == 0 {
			break
		}
		more, part = full, part+max(room.limit/len(full), 1)
	}
	return chosen, nil
}

// fitting returns the first messages of each shard that fit into room.
func fitting[M interface{ Place() (seq int64, size int) }](shards []int, found map[int][]M, room *Room) (chosen []M) {
	for _, shard := range shards {
		for _, m := range found[shard] {
			if _, size := m.Place(); room.Full || !room.Take(size) {
				break
			}
			chosen = append(chosen, m)
		}
	}
	return chosen
}
