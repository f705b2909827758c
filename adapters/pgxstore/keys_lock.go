package pgxstore

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/internal/claims"
	"github.com/txonce/txonce/internal/columns"
)

// LockKeys locks keys until the transaction ends. Transactions that lock the same key exclude each other, on all nodes.
// It is for work that concerns more than its own message's key: to read and write an account over several tables, or to
// call a system that must not be called twice at the same time. The message's own key needs no lock, because the claim
// already locks it. Keys are scoped by consumer and tenant, as claims are, and are not claimed. One call locks its keys
// in an order that is the same on all nodes, so name all keys of a transaction in one call: two calls may deadlock with
// two calls of another transaction. Then the server ends one of the transactions with a Retryable error.
//
// LockKeys waits for keys that other transactions hold, in total up to Config.ClaimTimeout. Then it fails with
// dedup.ErrInFlight and names the key. If a handler returns that error, the message is delivered again later, and no
// attempt is counted. After any error the transaction can only be rolled back. COMMIT, ROLLBACK and the loss of the
// connection release the keys, and so does rolling back to an earlier savepoint. Above READ COMMITTED a transaction
// sees the state of the database at its first statement, which may be before LockKeys got the lock: then the lock
// excludes other writers, but reads may return outdated rows.
//
// LockKeys also excludes handlers that use sqlstore on the same database, and it works behind a pooler in transaction
// mode. Locks belong to the database: equal keys in two schemas exclude each other as well.
//
// To order the messages that transactions enqueue, use LockOrderingKey. Its locks are separate from these, and only ctx
// limits its wait. A transaction that needs both calls LockKeys first.
//
// A rollback does not undo what a handler does in other systems. If the connection is lost, or Config.IdleInTxTimeout
// expires, the keys are released while a call to another system may still be running. Give such calls a shorter limit.
func (k *keys) LockKeys(ctx context.Context, tx pgx.Tx, keys ...dedup.Key) error {
	locks, err := claims.Locks(keys)
	if err != nil {
		return fmt.Errorf("pgxstore: %w", err)
	}
	until := time.Now().Add(k.cfg.ClaimTimeout)
	for _, l := range locks {
		// rounded up, because 0 would mean no limit
		wait := max((time.Until(until) + time.Millisecond - 1).Milliseconds(), 1)
		_, err := tx.Exec(ctx, k.plain.Lock, l.Number, fmt.Sprintf("%dms", wait))
		switch {
		case sqlState(err) == "55P03":
			return fmt.Errorf("%w: lock %v, for more than %v: %w", dedup.ErrInFlight, l.Key, k.cfg.ClaimTimeout, err)
		case err != nil:
			return stepError(fmt.Sprintf("lock %v", l.Key), err)
		}
	}
	return nil
}

// LockOrderingKey locks key until the transaction ends, so that transactions with the same key run one after another.
// Their messages are then published in the order of their commits, even if they lock no common row. It waits for the
// transaction that holds the key. Limit the wait by ctx, or by the session's lock_timeout, whose error is Retryable.
// Lock several keys in the same order everywhere, or transactions may deadlock until the server ends one. Rolling back
// to a savepoint releases keys that were locked after it.
func (k *keys) LockOrderingKey(ctx context.Context, tx pgx.Tx, key string) error {
	if err := k.resolve(ctx, tx); err != nil {
		return err
	}
	_, err := tx.Exec(ctx, k.writes.LockOrderingKey, int64(columns.SerializeLock(key)))
	return stepError("serialize", err)
}
