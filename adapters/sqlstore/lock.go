package sqlstore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/internal/claims"
)

// LockKeys locks keys until the transaction ends, so that transactions that lock one of the same keys exclude each
// other, on any node. The claim already locks the message's own key. LockKeys is for work that concerns more than that:
// for example to read and write an account in several tables, or to call a service that must not be called
// concurrently. Keys are scoped by consumer and tenant, as claims are, but they are not claimed.
//
// Pass all keys of a transaction in one call, which locks them in a fixed order. Two transactions that make several
// calls may deadlock, and the server then ends one of them with a Retryable error.
//
// LockKeys waits for at most Config.ClaimTimeout for all keys together. It then fails with dedup.ErrInFlight and names
// the key. If a handler returns this error, the message is delivered again later without counting an attempt. After any
// error the transaction can only be rolled back. COMMIT, rollback, rollback to an earlier savepoint, and the loss of
// the connection release the keys. Above READ COMMITTED a transaction reads a snapshot from its first statement, which
// may be older than the lock: the lock then excludes other writers, but the transaction may read old data.
//
// LockOrderingKey is different: it orders the messages that transactions enqueue, by message key. Its locks are
// separate, and only ctx limits its wait. A transaction that needs both should call LockKeys first.
//
// On PostgreSQL handlers on pgxstore use the same locks, and a pooler in transaction mode makes no difference. Equal
// keys in two schemas also exclude each other. On MySQL a key is a row that is never visible. The wait may be up to
// ClaimTimeout or one second per key, whichever is longer. Transactions that wait for one key take turns by means of
// GET_LOCK, so that InnoDB finds no deadlock among them. On SQLite LockKeys makes tx the writing transaction, which
// excludes all others, whatever their keys.
//
// A rollback does not undo the handler's calls to other services. After the loss of the connection, or after
// Config.IdleInTxTimeout, the keys are free while such a call may still be running: give the call a shorter timeout.
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
		case s.fault(err).InFlight, errors.Is(err, dedup.ErrInFlight):
			return fmt.Errorf("%w: lock %v, for more than %v: %w", dedup.ErrInFlight, l.Key, s.cfg.ClaimTimeout, err)
		default:
			return s.statementError(fmt.Errorf("lock %v: %w", l.Key, err))
		}
	}
	return nil
}
