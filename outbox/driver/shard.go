package driver

import (
	"hash/fnv"

	"github.com/txonce/txonce/outbox"
)

// Shard returns the shard, of n, that a message belongs to: that of its key, or of its ID when it has no key. Stores
// write it into the message's row, so that a row keeps its shard. The hash is FNV-1a and must never change: two
// programs that disagree about the shard of a key would publish the key's messages out of order.
func Shard(m *outbox.Message, n int) int {
	h := fnv.New64a()
	if m.OrderingKey != "" {
		h.Write([]byte(m.OrderingKey))
	} else {
		h.Write([]byte(m.ID))
	}
	return int(h.Sum64() % uint64(n))
}
