package dedup

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"time"

	"github.com/txonce/txonce/internal/idtime"
)

// DefaultWindow is the default of Record.Window. A Kafka topic keeps messages for 7 days by default. It deletes whole
// segments, each when its newest message is that old, and a segment may cover 7 days.
const DefaultWindow = 15 * 24 * time.Hour

// MinWindow is the shortest Window. All processes rely on it: a key younger than MinWindow cannot have been forgotten,
// so a store need not read the horizon for such a message.
const MinWindow = time.Hour

// MaxAhead is how far a Record's Time may be ahead of the database's clock. All processes rely on it, because Horizon
// assumes that clocks are wrong by MaxAhead at most.
const MaxAhead = time.Hour

// minYear is the first year that a Time may be of: a time before it comes from a clock that was never set, or from a
// number of seconds that was read as milliseconds, which gives 1970. Once keys were deleted, such a message would
// always be Unprovable.
const minYear = 1980

// maxYear plus the longest Window is still before the year 9999, the last one that all databases can keep.
const maxYear = 9000

// Fingerprint is a short hash of a message's content. The zero value matches any content.
type Fingerprint [8]byte

// FingerprintOf returns the hash of content, which is never the zero value.
func FingerprintOf(content []byte) (f Fingerprint) {
	sum := sha256.Sum256(content)
	copy(f[:], sum[:])
	if f.IsZero() {
		f[0] = 1
	}
	return f
}

// IsZero reports whether f matches any content.
func (f Fingerprint) IsZero() bool { return f == Fingerprint{} }

// Matches reports whether f and g may be hashes of the same content.
func (f Fingerprint) Matches(g Fingerprint) bool { return f == g || f.IsZero() || g.IsZero() }

// Int64 returns f for a database's bigint column. driver.FingerprintFromInt64 is its inverse.
func (f Fingerprint) Int64() int64 { return int64(binary.BigEndian.Uint64(f[:])) }

// Record is a request to claim a key.
type Record struct {
	Key         Key
	Fingerprint Fingerprint // hash of the content; zero: unknown, matches any content
	// when the message was created, the same on every delivery; zero: unknown, never Unprovable
	Time   time.Time
	Window time.Duration // how long to remember the key at least; zero: DefaultWindow
	// the key was probably claimed before: a Store may read the row before it inserts; the result is the same
	Redelivered bool
}

// Validate returns nil if r can be claimed. It uses no clock: a time that no database can keep, or that is before 1980
// and not zero, is ErrFuture, and driver.ValidateTime checks the others.
func (r Record) Validate() error {
	if err := r.Key.Validate(); err != nil {
		return err
	}
	if r.Window != 0 && r.Window < MinWindow {
		return fmt.Errorf("dedup: window %v of %v is shorter than %v", r.Window, r.Key, MinWindow)
	}
	if year := r.Time.UTC().Year(); !r.Time.IsZero() && year < minYear || year > maxYear {
		hint := idtime.UnitHint(r.Time)
		if year < minYear && hint == "" {
			hint = ", before 1980: set the sender's clock, or leave out a time that is unknown"
		}
		return fmt.Errorf("%w: %v is of the year %d%s", ErrFuture, r.Key, year, hint)
	}
	return nil
}

func utc(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// Keep returns Window, or its default.
func (r Record) Keep() time.Duration {
	if r.Window == 0 {
		return DefaultWindow
	}
	return r.Window
}

// Verdict is the answer to a Record.
type Verdict uint8

const (
	_     Verdict = iota
	First         // this transaction inserted the row
	// a committed transaction inserted the row, or this transaction did it earlier, or an earlier Record of the same
	// call
	Duplicate
	Mismatch   // as Duplicate, but the row is for other content
	Unprovable // there is no row, but it may have been forgotten; nothing is claimed
)

var verdicts = [...]string{"none", "first", "duplicate", "mismatch", "unprovable"}

func (v Verdict) String() string {
	if int(v) < len(verdicts) {
		return verdicts[v]
	}
	return fmt.Sprintf("Verdict(%d)", uint8(v))
}

// Claim is the answer to a Record. All fields except Verdict describe the row that was there before.
type Claim struct {
	Verdict     Verdict
	Fingerprint Fingerprint
	ExpiresAt   time.Time
	Result      []byte // saved by a ResultStore; nil if none was
}
