package driver

import (
	"encoding/binary"

	"github.com/txonce/txonce/dedup"
)

// FingerprintFromInt64 is the inverse of dedup.Fingerprint.Int64.
func FingerprintFromInt64(n int64) (f dedup.Fingerprint) {
	binary.BigEndian.PutUint64(f[:], uint64(n))
	return f
}
