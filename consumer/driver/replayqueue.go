package driver

import (
	"context"
	"time"

	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/dedup/driver"
	"github.com/txonce/txonce/observe"
)

// ReplayQueue is a ParkingLot that keeps operators' requests to replay dead letters; see package consumer/ops. It is
// safe for concurrent use.
//
// Without it consumer.Consumer.RunReplays fails.
type ReplayQueue[TTx any] interface {
	ParkingLot[TTx]

	// TakeReplay returns a dead letter of consumer that a request has marked and that nobody else has taken, the oldest
	// first. Letters that were taken and not returned come last. For lease from now on it is returned to nobody else,
	// unless ReturnReplay returns it sooner. If there is none now, r is nil, and wait is how long to wait before the
	// next call, because of the request's rate for example; 0: there is no open request.
	//
	// TakeReplay ends a request that has no letters left, or as many failures as it allows.
	TakeReplay(ctx context.Context, name string, lease time.Duration) (
		r *driver.RequestedReplay, letter consumer.DeadLetter, wait time.Duration, err error,
	)

	// SettleReplay does what TakeDeadLetter does, and records the outcome for the request, as part of tx. It also fails
	// with consumer.ErrNotParked if the request has ended.
	SettleReplay(
		ctx context.Context, tx TTx, action [16]byte, letter consumer.DeadLetter, outcome observe.Outcome,
	) error

	// ReturnReplay ends the lease of a letter that action has marked, in a transaction of its own. If failed is not
	// empty, the mark is removed from the letter, and the failure is recorded with its text. Otherwise the letter is
	// taken again by TakeReplay, after wait.
	ReturnReplay(
		ctx context.Context, action [16]byte, letter consumer.DeadLetterID, failed observe.Cause, text string,
		wait time.Duration,
	) error
}
