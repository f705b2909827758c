package sqlite

import (
	"cmp"
	"context"
	"database/sql"
	"errors"

	"github.com/txonce/txonce/adapters/sqlstore/internal/engine"
	"github.com/txonce/txonce/internal/dialect"
	"github.com/txonce/txonce/internal/shares"
	"github.com/txonce/txonce/outbox"
	"github.com/txonce/txonce/outbox/driver"
)

// Enqueue writes msgs with consecutive numbers. It waits for other writers like a claim does. It does not wait if the
// transaction has read and its snapshot is out of date, because waiting cannot help then.
func (d *DB) Enqueue(ctx context.Context, tx *sql.Tx, msgs []outbox.Message) error {
	var last int64
	var clock engine.Instant
	var shards int
	err := d.retryBusyIn(ctx, func() error {
		return tx.QueryRowContext(ctx, d.box.Number, len(msgs)).Scan(&last, &clock, &shards)
	})
	switch {
	case errors.Is(err, sql.ErrNoRows) || err == nil && shards == 0:
		return engine.ErrNoShards
	case err != nil:
		return err
	}
	var now, later rowList
	for i := range msgs {
		rows := &now
		if engine.ClampTime(msgs[i].NotBefore).After(clock.Time) {
			rows = &later
		}
		if err := rows.add(&msgs[i], last-int64(len(msgs)-1-i), shards); err != nil {
			return err
		}
	}
	for query, rows := range map[string]*rowList{d.box.Enqueue: &now, d.box.Delay: &later} {
		if len(rows.list) > 0 {
			if _, err := tx.ExecContext(ctx, query, engine.JSON(rows.list), rows.bytes, clock.UnixMicro()); err != nil {
				return err
			}
		}
	}
	return nil
}

// rowList builds the parameters of dialect.SQLiteOutbox.Enqueue.
type rowList struct {
	list  [][]any
	bytes []byte
}

func (r *rowList) add(m *outbox.Message, seq int64, shards int) error {
	headers, err := engine.EncodeHeaders(m.Headers)
	if err != nil {
		return err
	}
	row := []any{seq, driver.Shard(m, shards), m.ID, m.Topic}
	for _, part := range [...][]byte{[]byte(m.OrderingKey), m.Payload, headers} {
		row = append(row, r.put(part), len(part))
	}
	r.list = append(r.list, append(row, engine.Micros(engine.ClampTime(m.NotBefore))))
	return nil
}

// put appends part and returns its position, counted as in substr.
func (r *rowList) put(part []byte) (place int) {
	if r.bytes == nil {
		r.bytes = []byte{0} // drivers send an empty blob as NULL
	}
	place = len(r.bytes) + 1
	r.bytes = append(r.bytes, part...)
	return place
}

// LockOrderingKey takes the write lock, which excludes all other writing transactions.
func (d *DB) LockOrderingKey(ctx context.Context, tx *sql.Tx, _ string) error {
	return d.retryBusyIn(ctx, func() error {
		_, err := tx.ExecContext(ctx, d.sql.Lock)
		return err
	})
}

// retryBusyIn runs f in the caller's transaction, and repeats it while another connection is writing. If the
// transaction has read and another connection has written since, waiting cannot help and f fails at once.
func (d *DB) retryBusyIn(ctx context.Context, f func() error) (err error) {
	waited := d.RetryBusy(ctx, func() error {
		err = f()
		if code, known := resultCode(err); known && dialect.SQLiteStale(code) {
			return nil
		}
		return err
	})
	return cmp.Or(waited, err)
}

func (d *DB) Renew(ctx context.Context, tx *sql.Tx, by *engine.Hold) (share shares.State, err error) {
	query := d.box.Begin
	if by.Begun {
		query = d.box.Extend
	}
	var until int64
	err = tx.QueryRowContext(ctx, query, by.Owner[:], by.Name, engine.CeilMicros(by.TTL)).Scan(&until)
	if errors.Is(err, sql.ErrNoRows) {
		return share, driver.ErrLeaseLost
	}
	if err != nil {
		return share, err
	}
	if _, err := tx.ExecContext(ctx, d.box.Restart); err != nil {
		return share, err
	}
	share = shares.NewState()
	if err := engine.Query(ctx, tx, d.box.Survey, by.Owner[:], by.Name).Each(share.ScanRelay); err != nil {
		return share, err
	}
	err = engine.Query(ctx, tx, d.box.Shards, by.Owner[:]).Each(share.ScanShard)
	return share, err
}

func (d *DB) TakeShards(ctx context.Context, tx *sql.Tx, by *engine.Hold, n int) (map[int]int64, error) {
	if _, err := tx.ExecContext(ctx, d.box.Bury); err != nil {
		return nil, err
	}
	return engine.ReadTokens(engine.Query(ctx, tx, d.box.Take, by.Owner[:], n))
}

func (d *DB) GiveBack(ctx context.Context, tx *sql.Tx, by *engine.Hold, shards []int) error {
	_, err := tx.ExecContext(ctx, d.box.GiveBack, by.Owner[:], engine.JSON(shards))
	return err
}

func (d *DB) Leave(ctx context.Context, tx *sql.Tx, by *engine.Hold) error {
	return engine.Exec(ctx, tx, []string{d.box.Leave, d.box.End}, by.Owner[:])
}

func (d *DB) Reading(ctx context.Context, f func(context.Context, engine.Queryer) error) error {
	return d.RetryBusy(ctx, func() error { return f(ctx, d.cfg.DB) })
}

func (d *DB) Leasable(ctx context.Context, q engine.Queryer, by *engine.Hold,
	_ map[int]int64,
) (engine.Leasable, error) {
	return engine.ReadLeasable(engine.Query(ctx, q, d.box.Look, by.Owner[:]))
}

func (d *DB) MoveDue(ctx context.Context, tx *sql.Tx, limit int) error {
	due, err := engine.ReadDue(engine.Query(ctx, tx, d.box.Due, limit))
	if err != nil || len(due) == 0 {
		return err
	}
	var last int64
	var clock engine.Instant
	var shards int
	if err := tx.QueryRowContext(ctx, d.box.Number, len(due)).Scan(&last, &clock, &shards); err != nil {
		return err
	}
	if _, err := tx.ExecContext(ctx, d.box.Come, engine.JSON(due), last-int64(len(due)-1)); err != nil {
		return err
	}
	_, err = tx.ExecContext(ctx, d.box.Came, engine.JSON(due))
	return err
}
