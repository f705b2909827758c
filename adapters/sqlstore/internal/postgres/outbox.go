package postgres

import (
	"context"
	"database/sql"
	"slices"
	"time"

	"github.com/txonce/txonce/adapters/sqlstore/internal/engine"
	"github.com/txonce/txonce/internal/columns"
	"github.com/txonce/txonce/internal/dialect"
	"github.com/txonce/txonce/internal/pgrelay"
	"github.com/txonce/txonce/internal/shares"
	"github.com/txonce/txonce/outbox"
	"github.com/txonce/txonce/outbox/driver"
)

// outboxStatements are the statements for the outbox.
type outboxStatements struct {
	write dialect.PostgresOutboxWrite
	relay dialect.PostgresOutbox
	look  dialect.PostgresOutboxLook
}

func newOutboxStatements(schema string) outboxStatements {
	return outboxStatements{
		write: dialect.NewPostgresOutboxWrite(schema), relay: dialect.NewPostgresOutbox(schema), look: dialect.NewPostgresOutboxLook(schema),
	}
}

// maxStatement is about how many bytes of messages one statement carries. The server's limit is a gigabyte, which it holds in
// memory.
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

// shardsIn returns the number of shards, which never changes while there are messages. It reads the number in tx: with a second
// connection, a pool whose connections are all enqueueing would deadlock.
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
			return d.box.write.EnqueueOne, []any{driver.Shard(m, shards), m.ID, m.Topic, []byte(m.OrderingKey), payload, string(headers)}, nil
		}
		for c, v := range [...]any{
			int64(driver.Shard(m, shards)), m.ID, m.Topic, []byte(m.OrderingKey), m.Payload, string(headers), notBefore(m.NotBefore),
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

// settings applies the settings of each of the relay's transactions.
func (d *DB) settings(ctx context.Context, q engine.Queryer) error {
	_, err := q.ExecContext(ctx, d.box.relay.Settings)
	return err
}

// in returns a pgrelay.Run that sends the steps in tx, without an end of the transaction.
func (d *DB) in(tx *sql.Tx) pgrelay.Run {
	return func(ctx context.Context, _ string, steps ...pgrelay.Step) error {
		if err := d.settings(ctx, tx); err != nil {
			return err
		}
		return sendSteps(ctx, tx, steps)
	}
}

// byItself returns a pgrelay.Run that sends the steps in a transaction of its own.
func (d *DB) byItself(run engine.Run) pgrelay.Run {
	return func(ctx context.Context, operation string, steps ...pgrelay.Step) error {
		return run(ctx, func(ctx context.Context, tx *sql.Tx) error { return d.in(tx)(ctx, operation, steps...) })
	}
}

// read implements pgrelay.Run for one statement that only reads.
func (d *DB) read(ctx context.Context, _ string, steps ...pgrelay.Step) error {
	return sendSteps(ctx, d.cfg.DB, steps)
}

func sendSteps(ctx context.Context, q engine.Queryer, steps []pgrelay.Step) error {
	for _, step := range steps {
		args := slices.Clone(step.Args)
		for i := range args {
			args[i] = parameter(args[i])
		}
		if step.Row != nil {
			if err := engine.Query(ctx, q, step.SQL, args...).Each(step.Row); err != nil {
				return err
			}
			continue
		}
		done, err := q.ExecContext(ctx, step.SQL, args...)
		if err != nil {
			return err
		}
		if step.Changed != nil {
			rows, err := done.RowsAffected()
			if err != nil {
				return err
			}
			step.Changed(rows)
		}
	}
	return nil
}

func (d *DB) Renew(ctx context.Context, tx *sql.Tx, by *engine.Hold) (shares.State, error) {
	state, err := pgrelay.Renew(ctx, d.in(tx), &d.box.relay, uuid(by.Owner), by.Name, by.TTL, by.Begun)
	if err == nil {
		by.Marks.Hold(state.Tokens, state.Returned)
	}
	return state, err
}

func (d *DB) TakeShards(ctx context.Context, tx *sql.Tx, by *engine.Hold, n int) (map[int]int64, error) {
	return pgrelay.Take(ctx, d.in(tx), &d.box.relay, uuid(by.Owner), n)
}

func (d *DB) GiveBack(ctx context.Context, tx *sql.Tx, by *engine.Hold, shards []int) error {
	return pgrelay.GiveBack(ctx, d.in(tx), &d.box.relay, uuid(by.Owner), shards)
}

func (d *DB) Leave(ctx context.Context, tx *sql.Tx, by *engine.Hold) error {
	return pgrelay.End(ctx, d.in(tx), &d.box.relay, uuid(by.Owner))
}

// Reading runs f in a transaction. Its settings prevent the server from scanning whole tables.
func (d *DB) Reading(ctx context.Context, f func(context.Context, engine.Queryer) error) error {
	leave, err := d.Enter(ctx)
	if err != nil {
		return err
	}
	defer leave()
	tx, err := d.cfg.DB.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelReadCommitted})
	if err != nil {
		return err
	}
	defer tx.Rollback() // does nothing after Commit
	if err := d.settings(ctx, tx); err != nil {
		return err
	}
	if err := f(ctx, tx); err != nil {
		return err
	}
	return tx.Commit()
}

func (d *DB) MoveDue(ctx context.Context, tx *sql.Tx, limit int) error {
	if err := d.settings(ctx, tx); err != nil {
		return err
	}
	_, err := tx.ExecContext(ctx, d.box.relay.Due, limit)
	return err
}

const (
	notifyPause = 5 * time.Millisecond // minimum time between two NOTIFYs of a Store
	notifyLimit = 10 * time.Second     // limit for one NOTIFY, which waits for the disk like COMMIT; after it the connection is closed
)

// Notify wakes the relays of other processes that listen. It sends NOTIFY in the background, and holds a connection of the
// pool only for that statement, so callers need not wait for it.
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
