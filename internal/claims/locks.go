package claims

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/txonce/txonce/dedup"
)

// Lock locks a business key without claiming it.
type Lock struct {
	Key dedup.Key
	// for databases whose locks are numbers; two keys with the same number exclude each other needlessly
	Number int64
	Row    [16]byte // for databases whose locks are rows; never equal to the KeyHash of a claim
}

// Locks returns one lock for each distinct key. The locks are sorted, so that all transactions take them in the same
// order.
func Locks(keys []dedup.Key) ([]Lock, error) {
	locks := make([]Lock, 0, len(keys))
	for _, k := range keys {
		if err := k.Validate(); err != nil {
			return nil, fmt.Errorf("lock: %w", err)
		}
		hash := k.Hash()
		sum := sha256.Sum256(append([]byte("txonce critical section\x00"), hash[:]...))
		locks = append(locks, Lock{k, int64(binary.BigEndian.Uint64(sum[:8])), [16]byte(sum[16:])})
	}
	slices.SortFunc(locks, func(a, b Lock) int { return cmp.Compare(a.Number, b.Number) })
	return slices.CompactFunc(locks, func(a, b Lock) bool { return a.Number == b.Number }), nil
}
