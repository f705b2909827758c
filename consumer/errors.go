package consumer

import (
	"errors"
	"fmt"
	"time"
)

// Errors that callers tell apart with errors.Is.
var (
	ErrNotParked       = errors.New("consumer: no such dead letter")
	ErrSuspectedReplay = errors.New("consumer: a further key of this message is known, its own is not")
	ErrOutcomeUnknown  = errors.New("consumer: nobody knows whether the effects of this message are committed")
	ErrParkLimit       = errors.New("consumer: parking limit spent")
	ErrHandlerTimeout  = errors.New("consumer: handler ran longer than Config.HandlerTimeout")
)

type permanentError struct{ error }

func (e permanentError) Unwrap() error { return e.error }

// Permanent marks err as one that no retry will cure: the message is parked at once. Permanent(nil) is nil.
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
	Err       error
	After     time.Duration // from now; zero: at once
	Uncounted bool          // the database's fault, a pause, or it waits behind a failure of its Key: Attempt stays as it is
}

func (e *RetryError) Error() string { return e.Err.Error() }
func (e *RetryError) Unwrap() error { return e.Err }

// RetryAfter lets a handler ask for its next attempt d from now, in place of the configured backoff. It still counts
// as an attempt.
func RetryAfter(err error, d time.Duration) error { return &RetryError{Err: err, After: d} }

// PanicError is the panic of a handler, or of another function of the Config. The transaction was rolled back.
type PanicError struct {
	Value any
	Stack []byte
}

func (e *PanicError) Error() string {
	return fmt.Sprintf("consumer: panic: %v\n%s", e.Value, e.Stack)
}

// Unwrap returns the value of the panic where that was an error.
func (e *PanicError) Unwrap() error {
	err, _ := e.Value.(error)
	return err
}
