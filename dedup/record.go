package dedup

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"time"
)

// DefaultWindow is how long keys are remembered where nothing else is said: a Kafka topic keeps 7 days by default, and
// a segment of up to 7 days goes only when its newest message is that old.
const DefaultWindow = 15 * 24 * time.Hour

// MinWindow is the shortest Window, and part of the protocol: a store need not ask for the horizon of a message that
// is younger, because no node can have forgotten it.
const MinWindow = time.Hour

// MaxAhead is how far ahead of the clock a Record's Time may be. It is part of the protocol, as the horizon allows
// for clocks that are wrong by that much and no more.
const MaxAhead = time.Hour

// Fingerprint is a short hash of a message's content. The zero value matches any.
type Fingerprint [8]byte

// FingerprintOf hashes content. It never returns the zero value.
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

// Matches reports whether f and g may be of the same content.
func (f Fingerprint) Matches(g Fingerprint) bool { return f == g || f.IsZero() || g.IsZero() }

// Int64 is f for a database's bigint column.
func (f Fingerprint) Int64() int64 { return int64(binary.BigEndian.Uint64(f[:])) }

// FingerprintFromInt64 is the inverse of Int64.
func FingerprintFromInt64(n int64) (f Fingerprint) {
	binary.BigEndian.PutUint64(f[:], uint64(n))
	return f
}

// Record asks for a key.
type Record struct {
	Key         Key
	Fingerprint Fingerprint   // zero: matches any content, and is recorded as unknown
	Time        time.Time     // when the message came into being, the same on every delivery; zero: never Unprovable
	Window      time.Duration // how long to remember it, at least; zero: DefaultWindow
}

// Validate reports why r cannot be claimed; nil if it can. now is the caller's clock: it only guards against times
// that are plainly wrong.
func (r Record) Validate(now time.Time) error {
	if err := r.Key.Validate(); err != nil {
		return err
	}
	if r.Window != 0 && r.Window < MinWindow {
		return fmt.Errorf("dedup: window %v of %v is shorter than %v", r.Window, r.Key, MinWindow)
	}
	if ahead := r.Time.Sub(now); ahead > MaxAhead {
		return fmt.Errorf("%w: %v is %v ahead of the clock, more than %v", ErrFuture, r.Key, ahead.Round(time.Second), MaxAhead)
	}
	return nil
}

// Keep is Window, or its default.
func (r Record) Keep() time.Duration {
	if r.Window == 0 {
		return DefaultWindow
	}
	return r.Window
}

// Verdict is the answer to a Record.
type Verdict uint8

const (
	_          Verdict = iota
	First              // this transaction inserted the row
	Duplicate          // a committed transaction did, or an earlier Record of the same call, or this transaction before
	Mismatch           // as Duplicate, but for other content
	Unprovable         // no row, and not younger than what was forgotten; nothing is claimed
)

var verdicts = [...]string{"none", "first", "duplicate", "mismatch", "unprovable"}

func (v Verdict) String() string {
	if int(v) < len(verdicts) {
		return verdicts[v]
	}
	return fmt.Sprintf("Verdict(%d)", uint8(v))
}

// Claim is what a Store found. All fields but Verdict are of the row that was there before.
type Claim struct {
	Verdict     Verdict
	Fingerprint Fingerprint
	ExpiresAt   time.Time
	Result      []byte // saved by a ResultStore; nil if none was
}
