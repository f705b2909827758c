package pgxstore

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

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
// Handlers on sqlstore in the same database are excluded too, and a pooler in transaction mode makes no difference. Locks are
// the database's: equal keys in two schemas exclude each other as well.
//
// What a handler does elsewhere meanwhile is not undone by a rollback. When the connection is lost, or Config.IdleInTxTimeout has
// passed, the keys are free while such a call may still be under way: bound it by a shorter limit.
func (s *Store) LockKeys(ctx context.Context, tx pgx.Tx, keys ...dedup.Key) error {
	locks, err := claims.Locks(keys)
	if err != nil {
		return fmt.Errorf("pgxstore: %w", err)
	}
	until := time.Now().Add(s.cfg.ClaimTimeout)
	for _, l := range locks {
		wait := max((time.Until(until) + time.Millisecond - 1).Milliseconds(), 1) // rounded up; 0 would be no limit
		_, err := tx.Exec(ctx, s.plain.Lock, l.Number, fmt.Sprintf("%dms", wait))
		var pg *pgconn.PgError
		switch {
		case errors.As(err, &pg) && pg.Code == "55P03":
			return fmt.Errorf("%w: lock %v, for more than %v: %w", dedup.ErrInFlight, l.Key, s.cfg.ClaimTimeout, err)
		case err != nil:
			return s.stepError(fmt.Sprintf("lock %v", l.Key), err)
		}
	}
	return nil
}
