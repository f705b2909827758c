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
)

// LetterID identifies a dead letter: the same content under the same key is the same letter, however often it is
// parked; a message without a key is identified by its position.
type LetterID [16]byte

func (id LetterID) String() string { return hex.EncodeToString(id[:]) }

// ParseLetterID is the inverse of String.
func ParseLetterID(s string) (id LetterID, err error) {
	if n, err := hex.Decode(id[:], []byte(s)); err != nil || n != len(id) || len(s) != 2*len(id) {
		return LetterID{}, fmt.Errorf("consumer: %q is not a dead letter's id: want %d hexadecimal digits", s, 2*len(id))
	}
	return id, nil
}

// DeadLetter is a message given up on, for a person to look at.
type DeadLetter struct {
	ID      LetterID
	Record  dedup.Record // as it was to be claimed; Key.ID is empty if it had no usable one
	Message Message      // without Raw
	Reason  Reason
	Cause   string // the error, as text

	// Filled in by a ParkingLot.
	Times         int       // how often it was parked
	First, Latest time.Time // when, by the database's clock
	Settled       bool      // its key was claimed for the same content since: nothing is left to do
}

// LetterFilter chooses dead letters. Zero fields choose all.
type LetterFilter struct {
	ID       LetterID
	Consumer string
	Reason   Reason
	After    LetterID // for the next page: the last ID of the page before
	Limit    int      // defaults to 100
}

// ParkingLot is a Store that keeps dead letters in the same database.
type ParkingLot[TTx any] interface {
	// Park keeps letter as part of tx. The same ID again updates it and counts; it never does nothing.
	// Any bytes in payload, headers and Key are kept as they are.
	Park(ctx context.Context, tx TTx, letter DeadLetter) error

	// Take removes a letter as part of tx, or fails with ErrNotParked. Of two that take one letter, one waits for the
	// other and then fails.
	Take(ctx context.Context, tx TTx, id LetterID) error

	// Letters lists in the order of ID.
	Letters(ctx context.Context, filter LetterFilter) ([]DeadLetter, error)
}
