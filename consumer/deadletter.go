package consumer

import (
	"context"
	"encoding/hex"
	"fmt"
	"time"

	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/internal/aliases"
	"github.com/txonce/txonce/observe"
)

// DeadLetterID identifies a dead letter. The same content with the same key always has the same ID. A message without a
// key is identified by its position.
type DeadLetterID [16]byte

func (id DeadLetterID) String() string { return hex.EncodeToString(id[:]) }

// ParseDeadLetterID is the inverse of String. It also accepts the dashes of PostgreSQL's uuid type. It refuses the ID
// of all zeros: no letter has it, and in a DeadLetterFilter it chooses all letters.
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

// Headers that a consumer adds to the message of a dead letter, in place of headers with these names that the message
// may have had. A replay removes them before the message is used.
const (
	headerParkedBy = "txonce-parked-by" // what the hook Parking of its Trace returned
	// Message.Aliases, as a JSON array of strings; absent if there are none. See DeadLetter.AliasRecords
	headerAliases = "txonce-aliases"
)

// DeadLetter is a message that a consumer has given up, kept in the database until it is replayed or discarded.
type DeadLetter struct {
	ID      DeadLetterID
	Record  dedup.Record  // what the consumer would have claimed; Key.ID is empty if the message has no usable key
	Message Message       // without Raw, Malformed, Fingerprint, Aliases and GiveUpAt
	Cause   observe.Cause // why it was parked; ops.Causes explains each
	Error   string        // the text of the error

	// Filled in by the store.
	Times         int       // how many times it was parked
	First, Latest time.Time // when it was parked, by the database's clock
	Settled       bool      // its key was claimed for the same content since: nothing is left to do
}

// AliasRecords returns what a replay or a discard of the letter claims beside rec, for the Aliases of its message. rec
// has the key that the message is claimed under.
func (l DeadLetter) AliasRecords(rec dedup.Record) []dedup.Record {
	ids, _ := aliases.Split(l.Message.Headers[headerAliases]) // parking has written them
	recs, _ := aliasRecords(rec, ids)                         // and has left out those that cannot be claimed
	return recs
}

// DiscardRecords returns what a discard of the letter claims under window, so that a late redelivery of its message is
// a duplicate, and another message with one of its Aliases is known content. It is nothing if the message has no usable
// key.
func (l DeadLetter) DiscardRecords(window time.Duration) []dedup.Record {
	if l.Record.Key.ID == "" {
		return nil
	}
	rec := l.Record
	rec.Window, rec.Time = window, time.Time{} // without a time it is never Unprovable
	return append([]dedup.Record{rec}, l.AliasRecords(rec)...)
}

// DeadLetterFilter chooses dead letters. Fields with the zero value choose all.
type DeadLetterFilter struct {
	ID       DeadLetterID
	Consumer string
	Cause    observe.Cause

	Topic     string
	MessageID string    // the business key, Record.Key.ID
	Tenant    string    // Record.Key.Tenant
	Position  string    // Message.Position, such as "orders/3/1042"
	Error     string    // a part of DeadLetter.Error, case-sensitive
	Since     time.Time // First is this time or later, by the database's clock
	Until     time.Time // First is before

	After DeadLetterCursor // for the next page: the Cursor of the last letter on the previous page
	Limit int              // how many letters at most; 0: 100
}

// DeadLetterCursor is a position among letters in the order newest first. It stays valid after its letter was removed.
type DeadLetterCursor struct {
	First time.Time // when the letter was parked for the first time
	ID    DeadLetterID
}

// Cursor returns the letter's position, for DeadLetterFilter.After.
func (l DeadLetter) Cursor() DeadLetterCursor { return DeadLetterCursor{First: l.First, ID: l.ID} }

// parkingLot is driver.ParkingLot, which says what a store does. Package driver imports this one.
type parkingLot[TTx any] interface {
	Park(ctx context.Context, tx TTx, letter DeadLetter) error
	TakeDeadLetter(ctx context.Context, tx TTx, letter DeadLetter) error
	DeadLetters(ctx context.Context, filter DeadLetterFilter) ([]DeadLetter, error)
}
