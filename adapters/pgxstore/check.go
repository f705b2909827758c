package pgxstore

import (
	"context"

	"github.com/txonce/txonce/dedup/driver"
)

// Check does the checks of Register, and registers nothing: its error names the first setting or missing table that would make every
// message fail, or that could lose commits. Then it looks whether the sequence is behind the numbers of the outbox, if the role may read
// both. It writes nothing.
func (s *Store) Check(ctx context.Context) error {
	err := s.check(ctx)
	if err == nil {
		err = permitted(s.checkNumbers(ctx))
	}
	return refusedAccess(err)
}

// permitted returns err unless it says that the role may not read a table or a sequence, which only relays and sweepers need.
func permitted(err error) error {
	if class(err) == driver.FaultPermission {
		return nil
	}
	return err
}
