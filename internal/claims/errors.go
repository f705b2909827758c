package claims

import (
	"errors"
	"fmt"

	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/outbox/driver"
)

// Owner is the package whose stores made an error. A handler may use a store of another package on another database: an
// error of that store is the handler's, and says nothing about the database of the claim.
type Owner string

// Error makes an Owner a target for errors.Is.
func (o Owner) Error() string { return string(o) }

// Errorf formats a databaseError as fmt.Errorf formats an error.
func (o Owner) Errorf(format string, args ...any) error {
	return o.Wrap(fmt.Errorf(format, args...))
}

// Wrap marks err as a failure of the database that no message caused.
func (o Owner) Wrap(err error) error { return databaseError{o, err} }

// Caused reports whether err, or an error in its tree, was marked by o.
func (o Owner) Caused(err error) bool { return errors.Is(err, o) }

// databaseError is a failure of the database that no message caused. It is Retryable for the stores of its owner.
type databaseError struct {
	owner Owner
	err   error
}

func (e databaseError) Error() string { return e.err.Error() }

func (e databaseError) Unwrap() error { return e.err }

// Is matches the owner. It also makes dedup.ErrSchema match driver.ErrSchema, and ErrSettings likewise, because the
// relay does not import package dedup.
func (e databaseError) Is(target error) bool {
	return target == e.owner || target == driver.ErrSchema && errors.Is(e.err, dedup.ErrSchema) ||
		target == driver.ErrSettings && errors.Is(e.err, dedup.ErrSettings)
}
