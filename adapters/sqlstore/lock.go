package sqlstore

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/internal/claims"
)

// LockKeys makes transactions that name one of the same keys exclude each other, from here to their end, on any node. It is for work
// that concerns more than its own message's key, of which the claim is the lock already: to read and write an account over
// several tables, or to call somebody who must not be called twice side by side. Keys are scoped by consumer and tenant as
// claims are, and are not claimed. They are locked in one order that is the same everywhere, so name all that a transaction
// needs in one call: two calls may meet two others in the opposite order, and then the server ends one of the transactions, with
// a Retryable error.
//
// For a key that another transaction has it waits, Config.ClaimTimeout for all of them, and then fails with dedup.ErrInFlight and
// says which: returned by a handler, that has the message delivered again later, without blame. After any error the
// transaction can only be rolled back. COMMIT, rollback and the loss of the connection free the keys, and so does rolling
// back to a savepoint from before. Above READ COMMITTED a transaction sees the database as it was at its first statement, which
// may be before its turn came: there the lock excludes writers, and keeps nobody from reading what is out of date.
//
// LockOrderingKey is for the order of what transactions enqueue, by the messages' key; its locks are others, and its wait is bounded by
// ctx alone. A transaction that needs both calls Lock first.
//
// On PostgreSQL handlers on pgxstore are excluded too, and a pooler in transaction mode makes no difference; equal
// keys in two schemas exclude each other as well. On MySQL a key is a row that is
// never seen, and the wait may be the longest of ClaimTimeout and a second for each key; where several wait for one key InnoDB now
// and then takes them for a deadlock, and ends all but one with a Retryable error. On SQLite it makes
// tx the one transaction that writes, which excludes all others, whatever their keys.
//
// What a handler does elsewhere meanwhile is not undone by a rollback. When the connection is lost, or Config.IdleInTxTimeout has
// passed, the keys are free while such a call may still be under way: bound it by a shorter limit.
func (s *Store) LockKeys(ctx context.Context, tx *sql.Tx, keys ...dedup.Key) error {
	locks, err := claims.Locks(keys)
	if err != nil {
		return fmt.Errorf("sqlstore: %w", err)
	}
	if err := s.locate(ctx, tx); err != nil {
		return err
	}
	until := time.Now().Add(s.cfg.ClaimTimeout)
	for _, l := range locks {
		err := s.db.Claims.LockKeys(ctx, tx, l, max(time.Until(until), time.Millisecond))
		switch {
		case err == nil:
		case s.fault(err).InFlight:
			return fmt.Errorf("%w: lock %v, for more than %v: %w", dedup.ErrInFlight, l.Key, s.cfg.ClaimTimeout, err)
		default:
			return s.statementError(fmt.Errorf("lock %v: %w", l.Key, err))
		}
	}
	return nil
}
