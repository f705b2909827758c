package consumer

import (
	"errors"
	"fmt"
	"time"

	"github.com/txonce/txonce/internal/usercode"
	"github.com/txonce/txonce/observe"
)

// Errors that callers tell apart with errors.Is.
var (
	ErrNotParked      = errors.New("consumer: no such dead letter, or it was parked again for another cause")
	ErrKnownContent   = errors.New("consumer: the content of this message is known, but its ID is new")
	ErrOutcomeUnknown = errors.New("consumer: it is unknown whether the effects of this message are committed")
	ErrParkLimit      = errors.New("consumer: parking limit spent")
	ErrHandlerTimeout = errors.New("consumer: handler ran longer than Config.HandlerTimeout")
	ErrClosed         = errors.New("consumer: closed") // the answer to calls after Close

	// ErrShortened says that a letter has only a part of its message, so that a replay needs a Repair that puts the
	// whole one back.
	ErrShortened = errors.New("the dead letter has only a part of its message")
)

type permanentError struct{ error }

func (e permanentError) Unwrap() error { return e.error }

// Permanent marks err as one that another attempt would only repeat: the message is parked at once. Permanent(nil) is
// nil.
func Permanent(err error) error {
	if err == nil {
		return nil
	}
	return permanentError{err}
}

// IsPermanent reports whether err was marked by Permanent.
func IsPermanent(err error) bool {
	var p permanentError
	return errors.As(err, &p)
}

// RetryError says that nothing was committed for a message, and when to deliver it again.
type RetryError struct {
	Err   error
	After time.Duration // how long to wait before the next delivery; 0: none
	// Message.Attempt must not grow: the database failed, the consumer pauses, or an earlier message of the Key failed
	Held bool
}

func (e *RetryError) Error() string { return e.Err.Error() }
func (e *RetryError) Unwrap() error { return e.Err }

// RetryAfter lets a handler choose how long to wait before its next attempt, instead of Config.Backoff. The attempt
// still counts. err must not be nil.
func RetryAfter(err error, d time.Duration) error { return &RetryError{Err: err, After: d} }

// PanicError is a panic of a handler or of another function of the Config. The transaction was rolled back.
type PanicError struct {
	Value any
	Stack []byte
}

func (e *PanicError) Error() string {
	return fmt.Sprintf("consumer: panic: %s\n%s", usercode.Text(e.Value), e.Stack)
}

// Unwrap returns a safe copy of the value of the panic if that is an error, and nil otherwise: its methods never panic.
// errors.Is and errors.As find in it what they find in Value.
func (e *PanicError) Unwrap() error {
	err, _ := e.Value.(error)
	return usercode.Error(err)
}

// MessageError says which message an error of a BatchHandler belongs to. The BatchHandler may wrap it. The consumer
// then tries that message alone, the messages before it together, and those after it together; without a MessageError
// it tries ever smaller batches. Message is one of the pointers that the BatchHandler got; nil and other pointers are
// ignored. The error does not decide about a message: only what happens in a transaction of its own does. So a wrong
// Message costs only time.
type MessageError struct {
	Message *Message
	Err     error
}

func (e *MessageError) Error() string { return e.Err.Error() }
func (e *MessageError) Unwrap() error { return e.Err }

// refusal says why a message must not run, whatever its handler would do.
type refusal struct {
	error
	cause observe.Cause
}

func (r *refusal) Unwrap() error { return r.error }

func refuse(cause observe.Cause, err error) error { return &refusal{Permanent(err), cause} }

// rejectedError hides a RetryError in err, because the message was given up.
type rejectedError struct{ err error }

func (e *rejectedError) Error() string        { return e.err.Error() }
func (e *rejectedError) Is(target error) bool { return errors.Is(e.err, target) }

func (e *rejectedError) As(target any) bool {
	if _, retry := target.(**RetryError); retry {
		return false
	}
	return errors.As(e.err, target)
}
