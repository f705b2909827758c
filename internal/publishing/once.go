package publishing

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"maps"
	"slices"

	"github.com/txonce/txonce/outbox"
)

// Once returns a text for brokers that drop a message whose deduplication id they know: the same on every publication
// of one row of an outbox, and another one for each row, also when two rows have the same ID. It reads the headers of
// outbox.PlainHeaders. If a HeaderFormat leaves them out, rows with the same ID are told apart by their content.
func Once(m *outbox.Message) string {
	if seq := m.Headers[outbox.HeaderSequence]; seq != "" {
		// the time tells the rows of two databases apart
		return m.ID + "/" + seq + "/" + m.Headers[outbox.HeaderEnqueued]
	}
	b := []byte(nil)
	add := func(s string) { b = append(binary.AppendUvarint(b, uint64(len(s))), s...) }
	add(m.OrderingKey)
	add(string(m.Payload))
	for _, name := range slices.Sorted(maps.Keys(m.Headers)) {
		add(name)
		add(m.Headers[name])
	}
	sum := sha256.Sum256(b)
	return m.ID + "/" + hex.EncodeToString(sum[:16])
}
