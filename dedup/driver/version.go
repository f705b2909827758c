package driver

import (
	"context"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/txonce/txonce/dedup"
)

// Versioner remembers the highest version of each object, for events that arrive out of order.
//
// Without it a handler must compare versions by itself, in the statement that writes the object's state.
type Versioner[TTx any] interface {
	// Newer reports whether version is higher than each version of object that a committed transaction, or tx itself,
	// has passed to Newer before, and records it as part of tx. An equal version is not newer. The first version of an
	// object is newer, whatever it is. If tx rolls back, version counts as never seen.
	//
	// object is any name that the application chooses, such as "subscription/sub_1": 1 to dedup.MaxID bytes of UTF-8
	// without NUL. All consumers of the database share it. Any other name is a dedup.ErrBadKey, and tx can still commit.
	//
	// It takes one round trip. Newer waits, as an UPDATE does, for a transaction that has asked about the same object,
	// and keeps later ones waiting until tx ends. So what tx writes about the object after Newer has returned true is
	// written in the order of versions. Transactions that ask about several objects should do so in one order, or the
	// server may end one of them with a Retryable error.
	Newer(ctx context.Context, tx TTx, object string, version int64) (bool, error)
}

// CheckObject returns a dedup.ErrBadKey if object cannot be the name of an object of a Versioner.
func CheckObject(object string) error {
	switch {
	case object == "":
		return fmt.Errorf("%w: the name of the object is empty", dedup.ErrBadKey)
	case len(object) > dedup.MaxID:
		return fmt.Errorf("%w: the name of the object has %d bytes, more than %d", dedup.ErrBadKey, len(object), dedup.MaxID)
	case !utf8.ValidString(object):
		return fmt.Errorf("%w: the name of the object is not valid UTF-8", dedup.ErrBadKey)
	case strings.IndexByte(object, 0) >= 0:
		return fmt.Errorf("%w: the name of the object contains a NUL byte", dedup.ErrBadKey)
	}
	return nil
}
