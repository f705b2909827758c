package postgres

import (
	"context"
	"database/sql"
	"time"

	"github.com/txonce/txonce/adapters/sqlstore/internal/engine"
	"github.com/txonce/txonce/internal/columns"
	"github.com/txonce/txonce/internal/dialect"
	"github.com/txonce/txonce/outbox"
	"github.com/txonce/txonce/outbox/driver"
)

// outboxStatements are the statements for the outbox.
type outboxStatements struct {
	write dialect.PostgresOutboxWrite
	relay dialect.PostgresOutbox
}

func newOutboxStatements(schema string) outboxStatements {
	return outboxStatements{write: dialect.NewPostgresOutboxWrite(schema), relay: dialect.NewPostgresOutbox(schema)}
}

// maxStatement is about how many bytes of messages one statement carries. The server's limit is a gigabyte, which it
// holds in memory.
const maxStatement = 8 << 20

// Enqueue sends one statement per maxStatement bytes.
func (d *DB) Enqueue(ctx context.Context, tx *sql.Tx, msgs []outbox.Message) error {
	shards, err := d.shardsIn(ctx, tx)
	if err != nil {
		return err
	}
	for len(msgs) > 0 {
		n, size := 0, 0
		for ; n < len(msgs) && (n == 0 || size < maxStatement); n++ {
			size += len(msgs[n].Payload) + len(msgs[n].OrderingKey)
		}
		query, args, err := d.insertion(msgs[:n], shards)
		if err != nil {
			return err
		}
		if _, err := tx.ExecContext(ctx, query, args...); err != nil {
			return err
		}
		msgs = msgs[n:]
	}
	return nil
}

// shardsIn returns the number of shards, which never changes while there are messages. It reads the number in tx: with
// a second connection, a pool whose connections are all enqueueing would deadlock.
func (d *DB) shardsIn(ctx context.Context, tx *sql.Tx) (int, error) {
	if n := d.shards.Load(); n > 0 {
		return int(n), nil
	}
	var n, last int64
	if err := tx.QueryRowContext(ctx, d.box.write.Shards).Scan(&n, &last); err != nil {
		return 0, err
	}
	if n == 0 || last != n-1 {
		return 0, engine.ErrNoShards
	}
	d.shards.Store(n)
	return int(n), nil
}

func (d *DB) insertion(msgs []outbox.Message, shards int) (query string, args []any, err error) {
	var columns [7]array
	timed := false
	for i := range msgs {
		m := &msgs[i]
		headers, err := engine.EncodeHeaders(m.Headers)
		if err != nil {
			return "", nil, err
		}
		if timed = timed || !m.NotBefore.IsZero(); len(msgs) == 1 && !timed {
			payload := m.Payload
			if payload == nil {
				payload = []byte{}
			}
			return d.box.write.EnqueueOne, []any{
				driver.Shard(m, shards), m.ID, m.Topic, []byte(m.OrderingKey), payload,
				string(headers),
			}, nil
		}
		for c, v := range [...]any{
			int64(driver.Shard(m, shards)), m.ID, m.Topic, []byte(m.OrderingKey), m.Payload, string(headers),
			notBefore(m.NotBefore),
		} {
			columns[c].add(v)
		}
	}
	for i := range columns {
		args = append(args, columns[i].String())
	}
	if timed {
		return d.box.write.EnqueueNotBefore, args, nil
	}
	return d.box.write.Enqueue, args[:6], nil
}

// notBefore returns '-infinity' instead of NULL for the zero time, because comparing NULL with the clock yields NULL.
func notBefore(t time.Time) string {
	if text := timestamp(engine.ClampTime(t)); text != nil {
		return text.(string)
	}
	return "-infinity"
}

// LockOrderingKey takes an advisory lock that ends with tx. adapters/pgxstore computes the same lock number.
func (d *DB) LockOrderingKey(ctx context.Context, tx *sql.Tx, key string) error {
	_, err := tx.ExecContext(ctx, d.box.write.LockOrderingKey, int64(columns.SerializeLock(key)))
	return err
}

const (
	notifyPause = 5 * time.Millisecond // minimum time between two NOTIFYs of a Store
	// limit for one NOTIFY, which waits for the disk like COMMIT; after it the connection is closed
	notifyLimit = 10 * time.Second
)

// Notify wakes the relays of other processes that listen. It sends NOTIFY in the background, and holds a connection of
// the pool only for that statement, so callers need not wait for it.
func (d *DB) Notify(ctx context.Context) { d.notifier.Call(ctx, notifyPause, d.notifyOnce) }

// notifyOnce sends NOTIFY outside of any transaction. If it fails, relays find the messages by polling.
func (d *DB) notifyOnce(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, notifyLimit)
	defer cancel()
	_, _ = d.cfg.DB.ExecContext(ctx, d.box.write.Notify, "")
}

// ListenStatements also tells the sessions that notify that somebody listens. Its statements have no parameters.
func (d *DB) ListenStatements(ctx context.Context) ([]string, error) {
	var channel string
	if err := d.cfg.DB.QueryRowContext(ctx, d.box.write.Channel).Scan(&channel); err != nil {
		return nil, err
	}
	return []string{d.box.write.Hear, `LISTEN "` + channel + `"`}, nil // the name has no quotes
}
