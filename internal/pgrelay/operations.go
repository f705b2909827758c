package pgrelay

import (
	"context"
	"time"

	"github.com/txonce/txonce/internal/dialect"
	"github.com/txonce/txonce/internal/shares"
	"github.com/txonce/txonce/outbox"
)

// Operations implements outbox.Operations. All fields are required.
type Operations struct {
	Database Database
	SQL      *dialect.PostgresOutbox
	Ready    func(ctx context.Context) error // is called before SQL is read
	Wake     func(ctx context.Context)       // notifies relays
}

var _ outbox.Operations = Operations{}

// Parked implements outbox.Operations.
func (o Operations) Parked(ctx context.Context, filter outbox.ParkedFilter) (parked []outbox.ParkedMessage, err error) {
	if filter.Limit <= 0 {
		filter.Limit = 100
	}
	if err := o.Ready(ctx); err != nil {
		return nil, err
	}
	err = o.Database.Read(ctx, "list parked messages", Step{
		SQL: o.SQL.Parked,
		Args: []any{
			filter.After, filter.Topic, []byte(filter.OrderingKey), filter.Limit, filter.Error, nullTime(filter.Since),
			nullTime(filter.Until),
		},
		Row: func(row shares.Row) error {
			m, err := parkedMessage(row)
			parked = append(parked, m)
			return err
		},
		Sending: func() { parked = nil },
	})
	return parked, err
}

// nullTime returns NULL for the zero time.
func nullTime(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}

func parkedMessage(row shares.Row) (m outbox.ParkedMessage, err error) {
	var key []byte
	var headers *string
	if err := row.Scan(
		&m.Shard, &m.Seq, &m.ID, &m.Topic, &key, &m.Payload, &headers, &m.Enqueued, &m.Attempts, &m.Error,
		&m.Behind, &m.Waiting, &m.ParkedAt,
	); err != nil {
		return m, err
	}
	m.OrderingKey, m.Enqueued, m.ParkedAt = string(key), m.Enqueued.UTC(), m.ParkedAt.UTC()
	m.Headers, m.Unreadable = decodeHeaders(headers)
	return m, nil
}

// Unpark implements outbox.Operations. A message behind another parked message of its key stays parked. If Unpark fails
// midway, some messages are unparked, and the relay's Maintain later releases the messages that waited behind them.
func (o Operations) Unpark(ctx context.Context, seqs ...int64) (int, error) {
	return o.repair(ctx, seqs, func(q *dialect.PostgresOutbox) string { return q.Unpark })
}

// Discard implements outbox.Operations. If it fails midway, some messages are deleted.
func (o Operations) Discard(ctx context.Context, seqs ...int64) (int, error) {
	return o.repair(ctx, seqs, func(q *dialect.PostgresOutbox) string { return q.Discard })
}

func (o Operations) repair(ctx context.Context, seqs []int64,
	statement func(*dialect.PostgresOutbox) string,
) (int, error) {
	if err := o.Ready(ctx); err != nil {
		return 0, err
	}
	n, err := repair(ctx, o.Database, o.SQL, statement(o.SQL), seqs)
	if n > 0 {
		o.Wake(ctx)
	}
	return n, err
}
