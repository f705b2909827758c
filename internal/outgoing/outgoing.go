// Package outgoing derives the IDs of the messages that a handler enqueues without an ID of their own: from the key of
// the message that it handles, the topic, and an ordinal. So a second execution gives the same IDs, and an operator can
// find the messages of a key.
package outgoing

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"

	"github.com/txonce/txonce/internal/idtime"
)

// Seed returns the seed of the message with a key: the hash of the key, and its natural ID, which may contain a time.
// It must never change, because a handler that runs again after an upgrade would enqueue other IDs.
func Seed(hash [16]byte, id string) string { return string(hash[:]) + "/" + id }

// ID returns a UUID that depends on its arguments alone: of version 7, with the time that seed contains, or of version
// 8. ordinal is how many messages without an ID were enqueued to the topic before.
func ID(seed, topic string, ordinal int) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%q %q %d", seed, topic, ordinal))
	sum[6] = sum[6]&0x0f | 0x80
	sum[8] = sum[8]&0x3f | 0x80
	if ms := idtime.Of(seed); ms > 0 {
		sum[6] = sum[6]&0x0f | 0x70
		binary.BigEndian.PutUint64(sum[:8], ms<<16|uint64(binary.BigEndian.Uint16(sum[6:8])))
	}
	return fmt.Sprintf("%x-%x-%x-%x-%x", sum[0:4], sum[4:6], sum[6:8], sum[8:10], sum[10:16])
}

// DownstreamKey returns an idempotency key for a call to another system: a UUID of version 8 that depends on its
// arguments alone. It must never change, because a call that is repeated after an upgrade would happen again.
func DownstreamKey(seed, label string) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "txonce downstream 1 %q %q", seed, label))
	sum[6] = sum[6]&0x0f | 0x80
	sum[8] = sum[8]&0x3f | 0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", sum[0:4], sum[4:6], sum[6:8], sum[8:10], sum[10:16])
}
