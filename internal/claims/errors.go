package claims

import (
	"errors"
	"fmt"

	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/outbox"
)

// DatabaseError is a failure that no message has a part in: it is Retryable.
type DatabaseError struct{ Err error }

func (e DatabaseError) Error() string { return e.Err.Error() }

func (e DatabaseError) Unwrap() error { return e.Err }

// Is makes a dedup.ErrSchema an outbox.ErrSchema too, because the relay does not know package dedup.
func (e DatabaseError) Is(target error) bool {
	return target == outbox.ErrSchema && errors.Is(e.Err, dedup.ErrSchema)
}

// DatabaseErrorf makes a DatabaseError as fmt.Errorf makes an error.
func DatabaseErrorf(format string, args ...any) error {
	return DatabaseError{fmt.Errorf(format, args...)}
}
