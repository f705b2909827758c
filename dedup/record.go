package dedup

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"time"
)

// DefaultWindow is how long keys are remembered where nothing else is said: a Kafka topic keeps 7 days by default, and
// a segment of up to 7 days goes only when its newest message is that old.
const DefaultWindow = 15 * 24 * time.Hour

// MinWindow is the shortest Window, and part of the protocol: a store need not ask for the horizon of a message that
// is younger, because no node can have forgotten it.
const MinWindow = time.Hour

// MaxAhead is how far ahead of the database's clock a Record's Time may be. It is part of the protocol, as the horizon
// allows for clocks that are wrong by that much and no more.
const MaxAhead = time.Hour

// MaxClockSkew is how far the clocks of a machine and of its database may differ before neither of them is believed about a
// message that seems to come from the future.
const MaxClockSkew = 5 * time.Minute

// ErrClocks says that the clocks of this machine and of the database disagree, so that it is unknown whether a message's
// time or one of the clocks is wrong. A Store's error that is ErrClocks is Retryable, and cured by setting the clocks.
var ErrClocks = errors.New("dedup: the clocks of this machine and of the database disagree")

// maxYear leaves room for the longest Window before the year 9999, which is the last one that all databases can keep.
const maxYear = 9000

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

// Validate reports why r cannot be claimed; nil if it can. It asks no clock: it refuses times that no database can keep, with
// ErrFuture, and leaves the rest to ValidateTime.
func (r Record) Validate() error {
	if err := r.Key.Validate(); err != nil {
		return err
	}
	if r.Window != 0 && r.Window < MinWindow {
		return fmt.Errorf("dedup: window %v of %v is shorter than %v", r.Window, r.Key, MinWindow)
	}
	if year := r.Time.Year(); year < 1 || year > maxYear {
		return fmt.Errorf("%w: %v is of the year %d", ErrFuture, r.Key, year)
	}
	return nil
}

// ValidateTime reports that Time is more than MaxAhead ahead of database, which is the database's clock right after the
// claim of a new row. machine is this machine's clock at the same moment. The database's clock alone judges, because it is
// the one clock that all nodes share. Where the two clocks agree the error is ErrFuture, and the message is at fault. Where
// they differ by more than MaxClockSkew the error is ErrClocks, names both, and a Store must make it Retryable.
func (r Record) ValidateTime(database, machine time.Time) error {
	ahead := r.Time.Sub(database)
	if ahead <= MaxAhead {
		return nil
	}
	if skew := machine.Sub(database); skew.Abs() > MaxClockSkew {
		return fmt.Errorf("%w by %v: %v is of %v, the database's clock says %v, this machine's clock says %v; set the clock that is wrong",
			ErrClocks, skew.Abs().Round(time.Second), r.Key, utc(r.Time), utc(database), utc(machine))
	}
	return fmt.Errorf("%w: %v is of %v, %v ahead of the database's clock, more than %v",
		ErrFuture, r.Key, utc(r.Time), ahead.Round(time.Second), MaxAhead)
}

func utc(t time.Time) string { return t.UTC().Format(time.RFC3339) }

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
