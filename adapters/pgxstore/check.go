package pgxstore

import (
	"context"

	"github.com/txonce/txonce/dedup/driver"
	"github.com/txonce/txonce/internal/claims"
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

// checkNumbers fails if the sequence of the outbox is behind the numbers that are in use.
func (s *Store) checkNumbers(ctx context.Context) error {
	return defined(claims.CheckPostgresNumbers(database, s.scan(ctx), s.outbox.Numbers))
}

func (s *Store) scan(ctx context.Context) func(query string, dest ...any) error {
	return func(query string, dest ...any) error { return s.cfg.Pool.QueryRow(ctx, query).Scan(dest...) }
}

// permitted returns err unless it says that the role may not read a table or a sequence, which only relays and sweepers need.
func permitted(err error) error {
	if class(err) == driver.FaultPermission {
		return nil
	}
	return err
}

// defined returns err, or nil if err says that a table is missing: a program without an outbox need not have its tables, and one that uses
// an outbox gets ErrSchema from it.
func defined(err error) error {
	if isUndefined(err) {
		return nil
	}
	return err
}
