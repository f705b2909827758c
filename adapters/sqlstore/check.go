package sqlstore

import (
	"context"

	"github.com/txonce/txonce/dedup/driver"
)

// Check does the checks of Register, and registers nothing: its error names the first setting or missing table that
// would make every message fail, or that could lose commits. Then it looks for numbers of the outbox that are in use
// and would be given again, if the role may read them. It also makes claims of random keys and rolls them back: its
// error says that the server refuses a statement. For a role that may not write, it leaves these claims out.
func (s *Store) Check(ctx context.Context) error {
	err := s.check(ctx)
	if err == nil {
		err = s.permitted(s.try(ctx))
	}
	if err == nil {
		err = s.permitted(s.checkNumbers(ctx))
	}
	return s.refused(err)
}

// checkNumbers fails if what numbers the messages of the outbox is behind the numbers that are in use.
func (s *Store) checkNumbers(ctx context.Context) error {
	return s.defined(s.db.Transactions.RetryBusy(ctx, func() error { return s.db.Tables.CheckNumbers(ctx) }))
}

// permitted returns err unless it says that the role lacks a right, which only consumers, relays or sweepers need.
func (s *Store) permitted(err error) error {
	if err != nil && s.fault(err).Class == driver.FaultPermission {
		return nil
	}
	return err
}

// defined returns err, or nil if err says that a table is missing: a program without an outbox need not have its
// tables, and one that uses an outbox gets ErrSchema from it.
func (s *Store) defined(err error) error {
	if err != nil && s.fault(err).Undefined {
		return nil
	}
	return err
}
