package pgxstore

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/internal/columns"
	"github.com/txonce/txonce/outbox"
	"github.com/txonce/txonce/outbox/driver"
)

// Enqueue implements outbox.Writer.
//
// In a transaction of InTx the messages are written together with COMMIT, without an extra round trip. So the handler does not
// find them in the table, and InTx returns the database's errors about them. Rolling back to a savepoint discards the messages
// that were enqueued after it. In a transaction of the caller's own, Enqueue writes the messages at once, in one statement;
// call Wake after the commit. In both cases the role that the transaction has when they are written needs permission to insert
// them.
func (s *Store) Enqueue(ctx context.Context, tx pgx.Tx, msgs ...outbox.Message) error {
	if len(msgs) == 0 {
		return nil
	}
	ready, done, err := driver.Prepare(ctx, msgs)
	if err != nil {
		return err
	}
	defer done()
	if err := s.resolve(ctx, tx); err != nil {
		return err
	}
	rows, err := outgoingRows(ready)
	if err != nil {
		return err
	}
	guarded, branch := guardOf(tx)
	ours := guarded != nil && guarded.g.c.store == s
	switch {
	case ours && branch != nil:
		return branch.enqueue(ctx, guarded, rows)
	case ours:
		return guarded.enqueue(ctx, rows)
	case branch != nil: // so that the messages of all handlers are in order
		if err := branch.takeTurnFor(ctx); err != nil {
			return err
		}
	}
	_, err = s.write(ctx, tx, rows)
	if err == nil && guarded != nil {
		guarded.g.wakeAfter(s, rows)
	}
	return err
}

// write inserts rows, as many per statement as fit, and returns how many it has inserted.
func (s *Store) write(ctx context.Context, tx pgx.Tx, rows []outgoing) (written int, err error) {
	shards, err := s.shardsIn(ctx, tx)
	if err != nil {
		return 0, err
	}
	for written < len(rows) {
		rest := rows[written:]
		n := fitting(rest)
		sql, args := s.insertion(rest[:n], shards)
		if _, err := tx.Exec(ctx, sql, args...); err != nil {
			return written, stepError("enqueue", err)
		}
		written += n
	}
	return written, nil
}

// enqueues reports whether sql is a statement of write. Such a statement comes from a transaction of InTx that is wrapped by
// the application.
func (s *Store) enqueues(sql string) bool {
	return sql == s.writes.EnqueueOne || sql == s.writes.Enqueue || sql == s.writes.EnqueueNotBefore
}

// shardsIn returns the number of shards, which never changes while there are messages. It reads the number in tx: if each
// connection of the pool waited here for another connection, all would wait forever.
func (s *Store) shardsIn(ctx context.Context, tx querier) (int, error) {
	if n := s.shards.Load(); n > 0 {
		return int(n), nil
	}
	var count, last int64
	if err := tx.QueryRow(ctx, s.writes.Shards).Scan(&count, &last); err != nil {
		return 0, stepError("enqueue: count the shards", err)
	}
	if count == 0 || last != count-1 {
		return 0, database.Errorf("%w: table txonce_shards has %d rows, and the last shard is %d: want all from 0 on, as the migration wrote them", dedup.ErrSchema, count, last)
	}
	s.shards.Store(count)
	return int(count), nil
}

// LockOrderingKey locks key until the transaction ends, so that transactions with the same key run one after another. Their
// messages are then published in the order of their commits, even if they lock no common row. It waits for the transaction that
// holds the key. Limit the wait by ctx, or by the session's lock_timeout, whose error is Retryable. Lock several keys in the
// same order everywhere, or transactions may deadlock until the server ends one. Rolling back to a savepoint releases keys that
// were locked after it.
func (s *Store) LockOrderingKey(ctx context.Context, tx pgx.Tx, key string) error {
	if err := s.resolve(ctx, tx); err != nil {
		return err
	}
	_, err := tx.Exec(ctx, s.writes.LockOrderingKey, int64(columns.SerializeLock(key)))
	return stepError("serialize", err)
}
