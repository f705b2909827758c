package claims

import (
	"errors"
	"fmt"

	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/outbox"
)

// DatabaseError is a failure of the database that no message caused. It is Retryable.
type DatabaseError struct{ Err error }

func (e DatabaseError) Error() string { return e.Err.Error() }

func (e DatabaseError) Unwrap() error { return e.Err }

// Is makes dedup.ErrSchema match outbox.ErrSchema too, because the relay does not import package dedup.
func (e DatabaseError) Is(target error) bool {
	return target == outbox.ErrSchema && errors.Is(e.Err, dedup.ErrSchema)
}

// DatabaseErrorf formats a DatabaseError as fmt.Errorf formats an error.
func DatabaseErrorf(format string, args ...any) error {
	return DatabaseError{fmt.Errorf(format, args...)}
}
