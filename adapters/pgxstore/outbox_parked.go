package pgxstore

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/txonce/txonce/dedup/driver"
	"github.com/txonce/txonce/internal/dialect"
	"github.com/txonce/txonce/internal/pgrelay"
	"github.com/txonce/txonce/outbox"
)

// Outbox returns the operations on this store's outbox: its statistics, and what a person does with messages that a relay has
// parked. Dead letters of consumers are not in the outbox: see DeadLetters.
func (s *Store) Outbox() outbox.Operations { return operations{s} }

// operations are the outbox.Operations of a Store. They are apart from it because Store.Park and Store.DeadLetters are about the
// messages of consumers.
type operations struct{ store *Store }

// Parked implements outbox.Operations.
func (o operations) Parked(ctx context.Context, filter outbox.ParkedFilter) ([]outbox.ParkedMessage, error) {
	s := o.store
	if filter.Limit <= 0 {
		filter.Limit = 100
	}
	if err := s.resolve(ctx, s.cfg.Pool); err != nil {
		return nil, err
	}
	rows, _ := s.cfg.Pool.Query(ctx, s.outbox.Parked, filter.After, filter.Topic, []byte(filter.OrderingKey), filter.Limit,
		filter.Error, nullTime(filter.Since), nullTime(filter.Until))
	list, err := pgx.CollectRows(rows, parkedMessage)
	return list, s.outboxError("list parked messages", err)
}

// nullTime returns NULL for the zero time.
func nullTime(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}

func parkedMessage(row pgx.CollectableRow) (m outbox.ParkedMessage, err error) {
	var key []byte
	var headers *string
	if err := row.Scan(&m.Shard, &m.Seq, &m.ID, &m.Topic, &key, &m.Payload, &headers, &m.Enqueued, &m.Attempts, &m.Error,
		&m.Behind, &m.Waiting, &m.ParkedAt); err != nil {
		return m, err
	}
	m.OrderingKey = string(key)
	if headers != nil {
		m.Headers, m.Unreadable = driver.DecodeHeaders([]byte(*headers))
	}
	return m, nil
}

// Unpark implements outbox.Operations. A message behind another parked message of its key stays parked. If Unpark fails midway,
// some messages are unparked, and the relay's Maintain later releases the messages that waited behind them.
func (o operations) Unpark(ctx context.Context, seqs ...int64) (int, error) {
	return o.store.repair(ctx, seqs, func(q *dialect.PostgresOutbox) string { return q.Unpark })
}

// Discard implements outbox.Operations. If it fails midway, some messages are deleted.
func (o operations) Discard(ctx context.Context, seqs ...int64) (int, error) {
	return o.store.repair(ctx, seqs, func(q *dialect.PostgresOutbox) string { return q.Discard })
}

func (s *Store) repair(ctx context.Context, seqs []int64, statement func(*dialect.PostgresOutbox) string) (int, error) {
	if err := s.resolve(ctx, s.cfg.Pool); err != nil {
		return 0, err
	}
	n, err := pgrelay.Repair(ctx, inBatch(s.outboxTx), s.outboxRead, &s.outbox, statement(&s.outbox), seqs)
	if n > 0 {
		s.Wake(ctx)
	}
	return n, err
}
