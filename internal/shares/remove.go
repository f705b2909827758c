package shares

// Remove removes up to n shards that are idle from those that a session holds, so that no Lease reads them, and returns their numbers.
func Remove[Shard any](held map[int]Shard, n int, idle func(Shard) bool) (removed []int) {
	for number, shard := range held {
		if len(removed) < n && idle(shard) {
			removed = append(removed, number)
			delete(held, number)
		}
	}
	return removed
}
