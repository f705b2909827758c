package consumer

import (
	"context"
	"encoding/hex"
	"time"

	"github.com/txonce/txonce/observe"
)

// ActionID identifies something that an operator has requested; see package consumer/ops.
type ActionID [16]byte

func (id ActionID) String() string { return hex.EncodeToString(id[:]) }

// ReplayQueue is a ParkingLot that keeps operators' requests to replay dead letters. RunReplays carries them out. It is safe for
// concurrent use.
type ReplayQueue[TTx any] interface {
	ParkingLot[TTx]

	// TakeReplay returns a dead letter of consumer that a request has marked and that nobody else has taken, the oldest first. Letters that
	// were taken and not returned come last. For lease from now on it is returned to nobody else, unless ReturnReplay returns it sooner. If
	// there is none now, found is false, and wait is how long to wait before the next call, because of the request's rate for example; 0:
	// there is no open request.
	//
	// TakeReplay ends a request that has no letters left, or as many failures as it allows.
	TakeReplay(ctx context.Context, consumer string, lease time.Duration) (r RequestedReplay, found bool, wait time.Duration, err error)

	// SettleReplay does what TakeDeadLetter does, and records the outcome for the request, as part of tx. It also fails with ErrNotParked
	// if the request has ended.
	SettleReplay(ctx context.Context, tx TTx, action ActionID, letter DeadLetter, outcome observe.Outcome) error

	// ReturnReplay ends the lease of a letter, in a transaction of its own. If failed is not empty, the request's mark is removed from the
	// letter, and the failure is recorded with its text. Otherwise the letter is taken again by TakeReplay, after wait.
	ReturnReplay(ctx context.Context, r RequestedReplay, failed observe.Cause, text string, wait time.Duration) error
}

// RequestedReplay is a dead letter that an operator wants to be replayed.
type RequestedReplay struct {
	Action ActionID
	Letter DeadLetter
	Key    string // see Replay.Key
	AsNew  bool   // see Replay.AsNew

	// Payload replaces that of the letter's message.
	//
	// Defaults to nil: no change.
	Payload []byte

	Tries int // how often it was taken for this request, with this time
	Lost  int // how often it was taken before and not returned: the worker has ended, or works longer than its lease
}
