package outbox

import "strings"

// InDoubtError says that a message is a call to another system (package calls), and that the call may have happened:
// it was sent at least once, and its outcome is not known.
type InDoubtError struct{ Err error }

func (e *InDoubtError) Error() string { return callInDoubt + e.Err.Error() }
func (e *InDoubtError) Unwrap() error { return e.Err }

// HappenedError says that a message is a call to another system, and that the call has happened: only recording its
// result has failed.
type HappenedError struct{ Err error }

func (e *HappenedError) Error() string { return callHappened + e.Err.Error() }
func (e *HappenedError) Unwrap() error { return e.Err }

// The texts are in the database, where the errors themselves are lost.
const (
	callInDoubt  = "in doubt: the call may have happened: "
	callHappened = "the call has happened: "
)

// CallState says what is known of a parked call to another system.
type CallState string

// States.
const (
	NoCall       CallState = ""         // the message is no call, or the call has not happened
	CallInDoubt  CallState = "in doubt" // the call may have happened
	CallHappened CallState = "happened" // the call has happened, and its result is not recorded
)

// Call returns what is known of the call that m is.
func (m ParkedMessage) Call() CallState {
	switch {
	case m.Behind != 0: // it was not tried since
		return NoCall
	case strings.Contains(m.Error, callHappened):
		return CallHappened
	case strings.Contains(m.Error, callInDoubt):
		return CallInDoubt
	}
	return NoCall
}
