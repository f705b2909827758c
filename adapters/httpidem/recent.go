package httpidem

import (
	"encoding/binary"
	"sync"

	"github.com/txonce/txonce/dedup"
)

const recentKeys = 4096

// recent remembers some of the keys that this process has answered. For these the store reads the response before it
// claims the key, which saves a round trip if the response is there and costs one if it is not. A key replaces another
// one with the same last 12 bits.
type recent struct {
	mu   sync.Mutex
	keys [recentKeys]dedup.KeyHash
}

func place(h dedup.KeyHash) int { return int(binary.BigEndian.Uint16(h[14:])) % recentKeys }

func (r *recent) add(h dedup.KeyHash) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.keys[place(h)] = h
}

func (r *recent) has(h dedup.KeyHash) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.keys[place(h)] == h
}
