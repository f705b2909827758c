package dedup

import (
	"context"
	"fmt"
	"time"
)

// Purger is a Store that deletes expired keys, by the database's clock, in short transactions of its own. It is safe
// for concurrent use.
type Purger interface {
	// Purge deletes expired keys in the next part of the table, and records the horizon in the same transaction. A
	// crash before COMMIT deletes nothing. Tables that are older than this program, or that need a newer one, are left
	// alone: ErrSchema.
	Purge(ctx context.Context, by Sweep) (SweepResult, error)
}

// Archiver is a Purger that gives expired keys away before it deletes them. All stores of this module are Archivers.
type Archiver interface {
	Purger
	// PurgeArchived is as Purge, but first calls archive with the keys that it is about to delete, at most by.Limit. No
	// transaction is open meanwhile, and the lease is taken. If archive fails, nothing is deleted, and the error is that
	// of archive. A key may be archived again: after a crash, after an error of the database, and if a transaction holds
	// it. A key that has been claimed anew meanwhile is not deleted. archive is not called without keys.
	PurgeArchived(ctx context.Context, by Sweep,
		archive func(ctx context.Context, expired []Expired) error) (SweepResult, error)
}

// Expired is a key that is about to be deleted. It has what the database stored.
type Expired struct {
	Hash        KeyHash // identifies the key, also in several calls
	Key         Key     // the zero Key if the store is compact: only the hash was stored
	Fingerprint Fingerprint
	ExpiresAt   time.Time
	Result      []byte // that SaveResult stored, such as a response; nil: none
}

// Sweep says who purges, and how much at most.
type Sweep struct {
	Owner string        // different for each sweeper, also on one machine
	Lease time.Duration // how long after Owner's last Purge other owners do nothing
	Limit int           // how many keys to delete at most

	// Latest is the latest time that the database's clock should show. If it shows a later one, Purge fails with
	// ErrClock, deletes nothing and takes no lease. Zero: any time is accepted.
	Latest time.Time
}

// ClockAhead returns the error of a Purge at clock, the database's time, if that is after by.Latest, and nil otherwise.
// Stores call it.
func (by Sweep) ClockAhead(clock time.Time) error {
	if by.Latest.IsZero() || !clock.After(by.Latest) {
		return nil
	}
	return fmt.Errorf("%w: it shows %v, and should show %v at most; no key is deleted until it is set right, or until SweeperConfig.ConfirmClock returns true",
		ErrClock, utc(clock), utc(by.Latest))
}

// SweepResult is the result of one Purge.
type SweepResult struct {
	// Clock is the database's clock before anything was deleted: keys that expire later are kept. It is also set if
	// Busy is true and after ErrClock. Zero: the store does not tell.
	Clock time.Time

	Busy bool          // another owner has the lease: nothing was done
	Keys int           // how many keys were deleted
	Lag  time.Duration // how long before the Purge the oldest of them had expired
	Done bool          // the end of the table was reached; the next Purge starts at the beginning
}
