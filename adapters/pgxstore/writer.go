package pgxstore

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/txonce/txonce/dedup"
)

// writer writes outbox messages and results in the transactions of handlers, and commits these transactions.
type writer struct {
	*notifier
	shards    atomic.Int64  // number of the outbox's shards; 0: not read yet
	endWithin time.Duration // limit for COMMIT; tests shorten it
}

// write inserts rows, as many per statement as fit, and returns how many it has inserted.
func (w *writer) write(ctx context.Context, tx pgx.Tx, rows []outgoing) (written int, err error) {
	shards, err := w.shardsIn(ctx, tx)
	if err != nil {
		return 0, err
	}
	for written < len(rows) {
		rest := rows[written:]
		n := fitting(rest)
		sql, args := w.insertion(rest[:n], shards)
		if _, err := tx.Exec(ctx, sql, args...); err != nil {
			return written, stepError("enqueue", err)
		}
		written += n
	}
	return written, nil
}

// enqueues reports whether sql is a statement of write. Such a statement comes from a transaction of InTx that is
// wrapped by the application.
func (w *writer) enqueues(sql string) bool {
	return sql == w.writes.EnqueueOne || sql == w.writes.Enqueue || sql == w.writes.EnqueueNotBefore
}

// shardsIn returns the number of shards, which never changes while there are messages. It reads the number in tx: if
// each connection of the pool waited here for another connection, all would wait forever.
func (w *writer) shardsIn(ctx context.Context, tx querier) (int, error) {
	if n := w.shards.Load(); n > 0 {
		return int(n), nil
	}
	var count, last int64
	if err := tx.QueryRow(ctx, w.writes.Shards).Scan(&count, &last); err != nil {
		return 0, stepError("enqueue: count the shards", err)
	}
	if count == 0 || last != count-1 {
		return 0, database.Errorf("%w: table txonce_shards has %d rows, and the last shard is %d: want all from 0 on, as the migration wrote them", dedup.ErrSchema, count, last)
	}
	w.shards.Store(count)
	return int(count), nil
}

// insertion returns the statement that writes rows, and its arguments. An array without values is sent as NULL, and the
// statement reads that as an array of NULLs.
func (w *writer) insertion(rows []outgoing, shards int) (sql string, args []any) {
	if len(rows) == 1 && rows[0].notBefore.IsZero() {
		r := &rows[0]
		return w.writes.EnqueueOne, []any{r.shard(shards), r.id, r.topic, []byte(r.key), r.payload, r.headers}
	}
	var (
		n             = len(rows)
		of            = make([]int16, n)
		ids, topics   = make([]string, n), make([]string, n)
		keys, headers = [][]byte(nil), []string(nil)
		payloads      = make([][]byte, n)
		times         []time.Time
	)
	for i := range rows {
		r := &rows[i]
		of[i], ids[i], topics[i], payloads[i] = r.shard(shards), r.id, r.topic, r.payload
		if r.key != "" {
			if keys == nil {
				keys = empty(n)
			}
			keys[i] = []byte(r.key)
		}
		if r.headers != "" {
			if headers == nil {
				headers = make([]string, n)
			}
			headers[i] = r.headers
		}
		if !r.notBefore.IsZero() {
			if times == nil {
				times = make([]time.Time, n)
			}
			times[i] = r.notBefore
		}
	}
	args = []any{of, ids, topics, keys, payloads, headers}
	if times == nil {
		return w.writes.Enqueue, args
	}
	return w.writes.EnqueueNotBefore, append(args, times)
}
