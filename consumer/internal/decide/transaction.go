package decide

import "github.com/txonce/txonce/observe"

// Tried is what a transaction had to do with its messages before it failed.
type Tried struct {
	Messages int  // whose keys were claimed
	Claimed  bool // the store has answered the claims
	Ran      int  // whose handlers were called
	Culprits int  // that caused the failure, as far as known
	CanProbe bool // the store can tell which keys other transactions hold
}

// Plan says what to do with the messages of a transaction that has failed.
type Plan uint8

const (
	Halves    Plan = iota // try both halves: it is unknown which message failed
	Around                // try the culprits alone, and those before, between and after them together
	Judge                 // there is one message: OfMessage decides
	ProbeKeys             // ask the store which keys are held, hold those messages, and try the others
	PauseAll              // the database fails: nothing more is tried
	HoldAll               // the pass ends: all messages go back, and nothing counts
)

// OfTransaction says what to do with the messages of a transaction that has failed with f.
func OfTransaction(f Failure, t Tried) Plan {
	switch {
	case f.Cancelled: // a shutdown counts against no message, whatever the error looks like
		return HoldAll
	case !t.Claimed && f.Database && !f.Clocks: // the messages had no part in it yet
		return PauseAll
	case t.Messages == 1:
		return Judge
	case !t.Claimed && t.Culprits == 0 && f.InFlight && t.CanProbe:
		return ProbeKeys
	case t.Culprits > 0: // they are tried alone, in case another message broke the transaction
		return Around
	}
	return Halves
}

// Doubts says whether the messages of a transaction that has failed are in doubt: their claims may be committed without
// all of their effects. sure says that a handler has ended the transaction; otherwise it only may have. Without a
// handler that ran nothing is in doubt: the claims are committed together with nothing.
func Doubts(f Failure, t Tried) (add, sure bool) {
	switch {
	case t.Ran == 0:
		return false, false
	case f.Ended && !f.RolledBack:
		return true, true
	}
	return f.Maybe, false
}

// OutcomeUnknown returns what is known about a transaction that a handler has ended, whatever else f says. refused says
// that its only message must not run again.
func (f Failure) OutcomeUnknown(refused bool) Failure {
	return Failure{Cause: observe.CauseUnknown, Cancelled: f.Cancelled, Refused: refused, Permanent: true, Ended: true}
}

// Collided reports whether the database ended a transaction of several messages, as a deadlock does, which no single
// message causes. Then smaller transactions collide less often.
func Collided(f Failure, t Tried) bool {
	return t.Messages > 1 && t.Claimed && !f.Cancelled && f.Database && !f.Ambiguous
}
