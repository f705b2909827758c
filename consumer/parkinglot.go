package consumer

import (
	"context"
	"encoding/hex"
	"fmt"
	"time"

	"github.com/txonce/txonce/dedup"
)

// Reason says why a message was parked.
type Reason string

// The reasons for parking a message.
const (
	ReasonPoison     Reason = "poison"           // its handler failed for good
	ReasonNoKey      Reason = "no-key"           // it has no usable natural key, or could not be decoded to find it
	ReasonMismatch   Reason = "mismatch"         // its key was used for other content
	ReasonUnprovable Reason = "unprovable"       // it is older than what was forgotten, and has no claim
	ReasonReplay     Reason = "suspected-replay" // a further key of it is known, its own is not

	// ReasonTrial says that three processes ended while they tried it alone. A message that was delivered far oftener than
	// Config.MaxAttempts, and that this process knows nothing of, is tried so: it has such a letter while its handler runs,
	// and the process takes the letter back afterwards.
	ReasonTrial Reason = "trial"

	// ReasonUnknown says that nobody knows whether its effects are committed: a handler ended the transaction that
	// claimed it. Its key stays claimed: a redelivery does not run. Such a letter is not Settled by its claim; a person
	// looks at the effects, then replays it AsNew or discards it. Config.ParkLimit does not hold such a letter back.
	ReasonUnknown Reason = "outcome-unknown"
)

// DeadLetterID identifies a dead letter: the same content under the same key is the same letter, however often it is
// parked; a message without a key is identified by its position.
type DeadLetterID [16]byte

func (id DeadLetterID) String() string { return hex.EncodeToString(id[:]) }

// ParseDeadLetterID is the inverse of String. It also takes the form in which PostgreSQL prints a uuid, with dashes. The id of all
// zeros is refused: no letter has it, and in a DeadLetterFilter it would choose all.
func ParseDeadLetterID(s string) (id DeadLetterID, err error) {
	digits := s
	if len(s) == 36 && s[8] == '-' && s[13] == '-' && s[18] == '-' && s[23] == '-' {
		digits = s[:8] + s[9:13] + s[14:18] + s[19:23] + s[24:]
	}
	if len(digits) == 2*len(id) {
		if _, err := hex.Decode(id[:], []byte(digits)); err == nil && id != (DeadLetterID{}) {
			return id, nil
		}
	}
	return DeadLetterID{}, fmt.Errorf("consumer: %q is not a dead letter's id: want %d hexadecimal digits, not all zero", s, 2*len(id))
}

// DeadLetter is a message given up on, for a person to look at.
type DeadLetter struct {
	ID      DeadLetterID
	Record  dedup.Record // as it was to be claimed; Key.ID is empty if it had no usable one
	Message Message      // without Raw
	Reason  Reason
	Cause   string // the error, as text

	// Filled in by a ParkingLot.
	Times         int       // how often it was parked
	First, Latest time.Time // when, by the database's clock
	Settled       bool      // its key was claimed for the same content since: nothing is left to do
}

// DeadLetterFilter chooses dead letters. Zero fields choose all.
type DeadLetterFilter struct {
	ID       DeadLetterID
	Consumer string
	Reason   Reason
	After    DeadLetterCursor // for the next page: the Cursor of the last letter of the page before
	Limit    int              // defaults to 100
}

// DeadLetterCursor is a place among letters, newest first. It stays valid when its letter is taken.
type DeadLetterCursor struct {
	First time.Time // when the letter was parked for the first time
	ID    DeadLetterID
}

// Cursor is the letter's place, for DeadLetterFilter.After.
func (l DeadLetter) Cursor() DeadLetterCursor { return DeadLetterCursor{First: l.First, ID: l.ID} }

// ParkingLot is a Store that keeps dead letters in the same database.
type ParkingLot[TTx any] interface {
	// Park keeps letter as part of tx. The same ID again updates it and counts; it never does nothing.
	// Any bytes in payload, headers and Key are kept as they are.
	Park(ctx context.Context, tx TTx, letter DeadLetter) error

	// TakeDeadLetter removes a letter as part of tx, or fails with ErrNotParked. Of two that take one letter, one waits for the
	// other and then fails.
	TakeDeadLetter(ctx context.Context, tx TTx, id DeadLetterID) error

	// DeadLetters lists those that were parked for the first time most recently first, and of one time the greater ID first.
	DeadLetters(ctx context.Context, filter DeadLetterFilter) ([]DeadLetter, error)
}
