package outbox

import "hash/fnv"

// Shard says which of n shards a message belongs to: that of its key, or of its ID where it has no key. The stores
// write it beside each message, so that a row keeps its shard. It is FNV-1a, and must stay the same for ever: two
// programs that disagree about a key's shard would publish it out of order.
func Shard(m *Message, n int) int {
	h := fnv.New64a()
	if m.Key != "" {
		h.Write([]byte(m.Key))
	} else {
		h.Write([]byte(m.ID))
	}
	return int(h.Sum64() % uint64(n))
}
