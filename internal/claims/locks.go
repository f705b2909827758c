package claims

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/txonce/txonce/dedup"
)

// Lock is the lock of a natural key that is not claimed.
type Lock struct {
	Key    dedup.Key
	Number int64    // where locks are numbers; two keys that share one exclude each other without need
	Row    [16]byte // where they are rows beside those of claims, with none of which it is the same
}

// Locks returns those of keys, each once, in the order that everybody locks in.
func Locks(keys []dedup.Key) ([]Lock, error) {
	locks := make([]Lock, 0, len(keys))
	for _, k := range keys {
		if err := k.Validate(); err != nil {
			return nil, fmt.Errorf("lock: %w", err)
		}
		derived := k.Hash()
		sum := sha256.Sum256(append([]byte("txonce critical section\x00"), derived[:]...))
		locks = append(locks, Lock{k, int64(binary.BigEndian.Uint64(sum[:8])), [16]byte(sum[16:])})
	}
	slices.SortFunc(locks, func(a, b Lock) int { return cmp.Compare(a.Number, b.Number) })
	return slices.CompactFunc(locks, func(a, b Lock) bool { return a.Number == b.Number }), nil
}
