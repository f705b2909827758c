package engine

import "github.com/txonce/txonce/outbox"

// LeaseFairly first reads an equal number of messages from each shard, and then more from the shards that have more, within
// want. read returns the first part due messages of each shard whose number is above after, ordered by number.
func LeaseFairly[M interface{ Place() (seq int64, size int) }](
	shards []int, want outbox.Want, read func(shards []int, after map[int]int64, part int) (map[int][]M, error),
) (chosen []M, err error) {
	room := NewRoom(want)
	after := make(map[int]int64)
	for len(shards) > 0 && !room.Full {
		part := max(room.limit/len(shards), 1)
		found, err := read(shards, after, part)
		if err != nil {
			return nil, err
		}
		var more []int
		for _, shard := range shards {
			for _, m := range found[shard] {
				seq, size := m.Place()
				if room.Full || !room.Take(size) {
					break
				}
				chosen = append(chosen, m)
				after[shard] = seq
			}
			if len(found[shard]) >= part {
				more = append(more, shard)
			}
		}
		shards = more
	}
	return chosen, nil
}
