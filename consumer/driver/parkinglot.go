package driver

import (
	"context"

	"github.com/txonce/txonce/consumer"
)

// ParkingLot is a Store that keeps dead letters in the same database. It is safe for concurrent use.
//
// Without it messages that are given up are rejected, and consumer.New refuses the Store unless Config.RejectGivenUp is
// set.
type ParkingLot[TTx any] interface {
	// Park writes letter as part of tx. If there is a letter with the same ID, Park updates it and adds one to Times.
	// Of the two payloads the longer one stays: letters with one ID have the same, unless one of them is shortened.
	// Payload, headers and OrderingKey may contain any bytes.
	Park(ctx context.Context, tx TTx, letter consumer.DeadLetter) error

	// TakeDeadLetter removes the letter with the ID and the Cause of letter as part of tx. It fails with
	// consumer.ErrNotParked if there is none: it was removed, or parked again for another cause since it was read. If
	// two transactions take one letter, the second waits for the first, and fails if the first commits.
	TakeDeadLetter(ctx context.Context, tx TTx, letter consumer.DeadLetter) error

	// DeadLetters lists letters by First, latest first. Letters with equal First are listed by ID, greatest first.
	DeadLetters(ctx context.Context, filter consumer.DeadLetterFilter) ([]consumer.DeadLetter, error)
}
