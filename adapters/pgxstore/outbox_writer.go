package pgxstore

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/internal/claims"
	"github.com/txonce/txonce/internal/columns"
	"github.com/txonce/txonce/outbox"
)

var _ outbox.Writer[pgx.Tx] = (*Store)(nil)

// Enqueue implements outbox.Writer.
//
// In a transaction of InTx the messages are written with the last round trip before its end, so that they cost none of their
// own: a handler does not find them in the table, and an error of the database's that concerns them is InTx's. They are
// published, or not, with the savepoint in which they were enqueued. In a transaction of the caller's own they are written
// at once, by one statement; call Wake after the commit. Either way it is done as the transaction's role then, which
// needs the right to.
func (s *Store) Enqueue(ctx context.Context, tx pgx.Tx, msgs ...outbox.Message) error {
	if len(msgs) == 0 {
		return nil
	}
	ready, done, err := outbox.Prepare(ctx, msgs)
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
	guarded, ours := tx.(*guarded)
	if ours && guarded.g.store == s {
		return guarded.enqueue(ctx, rows)
	}
	_, err = s.write(ctx, tx, rows)
	if err == nil && ours {
		guarded.g.wakeAfter(s, rows)
	}
	return err
}

// write sends rows, a statement for as many as one may hold, and returns how many it has sent.
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
			return written, s.stepError("enqueue", err)
		}
		written += n
	}
	return written, nil
}

// enqueues reports whether sql is one of write's, which came through a wrapper around a transaction of InTx.
func (s *Store) enqueues(sql string) bool {
	return sql == s.writes.EnqueueOne || sql == s.writes.Enqueue || sql == s.writes.EnqueueNotBefore
}

// shardsIn returns the number of shards, which never changes while there are messages. It is read in the first transaction
// that enqueues, because a pool whose connections all wait here for another one would wait for ever.
func (s *Store) shardsIn(ctx context.Context, tx querier) (int, error) {
	if n := s.shards.Load(); n > 0 {
		return int(n), nil
	}
	var count, last int64
	if err := tx.QueryRow(ctx, s.writes.Shards).Scan(&count, &last); err != nil {
		return 0, s.stepError("enqueue: count the shards", err)
	}
	if count == 0 || last != count-1 {
		return 0, claims.DatabaseErrorf("%w: table txonce_shards has %d rows, and the last shard is %d: want all from 0 on, as the migration wrote them", dedup.ErrSchema, count, last)
	}
	s.shards.Store(count)
	return int(count), nil
}

// LockOrderingKey makes transactions that name the same key follow each other, from here to their end: what they enqueue is
// then published in the order in which they commit, though they lock no row in common. It waits for the transaction that
// has the key; bound that by ctx, or by the session's lock_timeout, whose error is Retryable. Name several keys in the
// same order everywhere, or transactions wait for each other until the server ends one. Rolling back to a savepoint gives
// up what was taken after it.
func (s *Store) LockOrderingKey(ctx context.Context, tx pgx.Tx, key string) error {
	if err := s.resolve(ctx, tx); err != nil {
		return err
	}
	_, err := tx.Exec(ctx, s.writes.LockOrderingKey, int64(columns.SerializeLock(key)))
	return s.stepError("serialize", err)
}
