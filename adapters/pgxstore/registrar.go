package pgxstore

import (
	"context"
	"time"

	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/dedup/driver"
	"github.com/txonce/txonce/internal/claims"
	"github.com/txonce/txonce/internal/faults"
)

// registrar checks the database and records which consumers use it, before they claim.
type registrar struct {
	*claimer
	names claims.Names
}

// Register implements driver.Registrar.
func (r *registrar) Register(ctx context.Context, consumer string, window time.Duration) error {
	err := r.names.Register(ctx, consumer, window, func(w claims.Window) error {
		if err := r.check(ctx); err != nil {
			return err
		}
		return r.leases.Use([]claims.Window{w}, func(w claims.Window) (time.Time, error) { return r.use(ctx, w) })
	})
	return refusedAccess(err)
}

// check rejects a configuration that would make every message fail, or that could lose commits.
func (r *registrar) check(ctx context.Context) error {
	if err := r.checkPooler(ctx); err != nil {
		return err
	}
	if err := r.checkSettings(ctx); err != nil {
		return err
	}
	return r.checkSchema(ctx)
}

// Release implements driver.Registrar.
func (r *registrar) Release(consumer string) { r.names.Free(consumer) }

// NameFree implements driver.Registrar.
func (r *registrar) NameFree(consumer string) error { return r.names.NameFree(consumer) }

// Check does the checks of Register, and registers nothing: its error names the first setting or missing table that
// would make every message fail, or that could lose commits. Then it looks whether the sequence is behind the numbers
// of the outbox, if the role may read both. It writes nothing.
func (r *registrar) Check(ctx context.Context) error {
	err := r.check(ctx)
	if err == nil {
		err = permitted(r.checkNumbers(ctx))
	}
	return refusedAccess(err)
}

// permitted returns err unless it says that the role may not read a table or a sequence, which only relays and sweepers
// need.
func permitted(err error) error {
	if class(err) == driver.FaultPermission {
		return nil
	}
	return err
}

// refusedAccess adds ErrAccess to an error that says that the database refused the user.
func refusedAccess(err error) error {
	if faults.Postgres.Refused(class(err)) {
		return database.Errorf("%w: %w", dedup.ErrAccess, err)
	}
	return err
}
