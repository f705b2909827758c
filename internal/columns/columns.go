// Package columns says what stores write into the columns of their tables, whatever the database: texts, dead letters, and what a
// relay says of a message that it could not publish.
package columns

import (
	"cmp"
	"errors"
	"hash/fnv"
	"strings"

	"github.com/txonce/txonce/outbox"
)

// maxText is how much of a text is kept, in bytes.
const maxText = 8 << 10

// Text is what a text column takes: valid UTF-8 without NUL.
func Text(s string) string {
	if len(s) > maxText {
		s = s[:maxText]
	}
	return strings.ReplaceAll(strings.ToValidUTF8(s, "\uFFFD"), "\x00", "\uFFFD")
}

var errNoCause = errors.New("no cause was stated")

// Cause is what the table says about a failure.
func Cause(o *outbox.Outcome) string { return Text(cmp.Or(o.Cause, errNoCause).Error()) }

// Attempts is how often the message has failed, with this outcome. It is counted from what was leased, so that settling twice counts
// once.
func Attempts(o *outbox.Outcome) int {
	if o.Uncounted {
		return o.Attempts
	}
	return o.Attempts + 1
}

// SerializeLock is the number of the lock that LockOrderingKey takes for key.
func SerializeLock(key string) uint64 {
	h := fnv.New64a()
	h.Write([]byte("txonce outbox serialize\x00" + key))
	return h.Sum64()
}
