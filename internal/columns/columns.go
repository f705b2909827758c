// Package columns converts values to the text and numbers that all stores write into their tables: texts, dead letters,
// and a relay's report on a message that it could not publish.
package columns

import (
	"cmp"
	"errors"
	"hash/fnv"
	"math"
	"strings"

	"github.com/txonce/txonce/internal/usercode"
	"github.com/txonce/txonce/outbox/driver"
)

// maxText is the longest text that is stored, in bytes.
const maxText = 8 << 10

// Text makes s fit a text column: valid UTF-8 without NUL, at most maxText bytes.
func Text(s string) string {
	if len(s) > maxText {
		s = s[:maxText]
	}
	return strings.ReplaceAll(strings.ToValidUTF8(s, "\uFFFD"), "\x00", "\uFFFD")
}

var errNoError = errors.New("no error was stated")

// Error returns the text that the table stores about a failure.
func Error(o *driver.Outcome) string {
	return Text(usercode.Error(cmp.Or(o.Err, errNoError)).Error())
}

// Attempts returns how often the message has failed, including this outcome. It adds to the number that was leased, so
// that settling twice counts once.
func Attempts(o *driver.Outcome) int {
	if o.BrokerFault {
		return o.Attempts
	}
	return min(o.Attempts+1, math.MaxInt32)
}

// SerializeLock returns the number of the lock that LockOrderingKey takes for key.
func SerializeLock(key string) uint64 {
	h := fnv.New64a()
	h.Write([]byte("txonce outbox serialize\x00" + key))
	return h.Sum64()
}
