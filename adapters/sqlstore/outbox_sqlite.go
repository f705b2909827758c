package sqlstore

import (
	"cmp"
	"context"
	"database/sql"
	"errors"

	"github.com/txonce/txonce/internal/dialect"
	"github.com/txonce/txonce/outbox"
)

// enqueue writes msgs with numbers that no other transaction can get between. It waits for its turn as a claim does, but
// not where waiting cannot help: in a transaction that has read, and whose snapshot is out of date.
func (d *sqlite) enqueue(ctx context.Context, tx *sql.Tx, msgs []outbox.Message) error {
	var last int64
	var clock instant
	var shards int
	err := d.patientlyWithin(ctx, func() error {
		return tx.QueryRowContext(ctx, d.box.Number, len(msgs)).Scan(&last, &clock, &shards)
	})
	switch {
	case errors.Is(err, sql.ErrNoRows) || err == nil && shards == 0:
		return errNoShards
	case err != nil:
		return err
	}
	var now, later outboxRows
	for i := range msgs {
		rows := &now
		if clampTime(msgs[i].NotBefore).After(clock.Time) {
			rows = &later
		}
		if err := rows.add(&msgs[i], last-int64(len(msgs)-1-i), shards); err != nil {
			return err
		}
	}
	for query, rows := range map[string]*outboxRows{d.box.Enqueue: &now, d.box.Delay: &later} {
		if len(rows.list) > 0 {
			if _, err := tx.ExecContext(ctx, query, jsonText(rows.list), rows.bytes, clock.UnixMicro()); err != nil {
				return err
			}
		}
	}
	return nil
}

// outboxRows are the parameters of dialect.SQLiteOutbox.Enqueue.
type outboxRows struct {
	list  [][]any
	bytes []byte
}

func (r *outboxRows) add(m *outbox.Message, seq int64, shards int) error {
	headers, err := encodeHeaders(m.Headers)
	if err != nil {
		return err
	}
	row := []any{seq, outbox.Shard(m, shards), m.ID, m.Topic}
	for _, part := range [...][]byte{[]byte(m.Key), m.Payload, headers} {
		row = append(row, r.put(part), len(part))
	}
	r.list = append(r.list, append(row, micros(clampTime(m.NotBefore))))
	return nil
}

// put returns the place of part as substr counts.
func (r *outboxRows) put(part []byte) (place int) {
	if r.bytes == nil {
		r.bytes = []byte{0} // drivers make NULL of an empty blob
	}
	place = len(r.bytes) + 1
	r.bytes = append(r.bytes, part...)
	return place
}

// serialize takes the write lock, which excludes every other transaction that writes.
func (d *sqlite) serialize(ctx context.Context, tx *sql.Tx, _ string) error {
	return d.patientlyWithin(ctx, func() error {
		_, err := tx.ExecContext(ctx, d.sql.Lock)
		return err
	})
}

// patientlyWithin runs f in a transaction of the caller's, again and again where another connection is writing. Where the
// transaction has read, and another has written since, no waiting helps.
func (d *sqlite) patientlyWithin(ctx context.Context, f func() error) (err error) {
	waited := d.patiently(ctx, func() error {
		err = f()
		if code, known := sqliteCode(err); known && dialect.SQLiteStale(code) {
			return nil
		}
		return err
	})
	return cmp.Or(waited, err)
}

func (d *sqlite) renew(ctx context.Context, tx *sql.Tx, by *outboxHold) (share outboxShare, err error) {
	query := d.box.Begin
	if by.begun {
		query = d.box.Extend
	}
	var until int64
	err = tx.QueryRowContext(ctx, query, by.owner[:], by.name, ceilMicros(by.ttl)).Scan(&until)
	if errors.Is(err, sql.ErrNoRows) {
		return share, outbox.ErrLeaseLost
	}
	if err != nil {
		return share, err
	}
	share = newOutboxShare()
	rows, err := tx.QueryContext(ctx, d.box.Survey, by.owner[:], by.name)
	if err := each(rows, err, share.scanRelay); err != nil {
		return share, err
	}
	rows, err = tx.QueryContext(ctx, d.box.Shards, by.owner[:])
	err = each(rows, err, share.scan)
	return share, err
}

func (d *sqlite) take(ctx context.Context, tx *sql.Tx, by *outboxHold, n int) (map[int]int64, error) {
	if _, err := tx.ExecContext(ctx, d.box.Bury); err != nil {
		return nil, err
	}
	return readTokens(tx.QueryContext(ctx, d.box.Take, by.owner[:], n))
}

func (d *sqlite) giveBack(ctx context.Context, tx *sql.Tx, by *outboxHold, shards []int) error {
	_, err := tx.ExecContext(ctx, d.box.GiveBack, by.owner[:], jsonText(shards))
	return err
}

func (d *sqlite) leave(ctx context.Context, tx *sql.Tx, by *outboxHold) error {
	for _, query := range [...]string{d.box.Leave, d.box.End} {
		if _, err := tx.ExecContext(ctx, query, by.owner[:]); err != nil {
			return err
		}
	}
	return nil
}

func (d *sqlite) reading(ctx context.Context, f func(context.Context, queryer) error) error {
	return d.patiently(ctx, func() error { return f(ctx, d.cfg.DB) })
}

func (d *sqlite) look(ctx context.Context, q queryer, by *outboxHold) (outboxSight, error) {
	return readSight(q.QueryContext(ctx, d.box.Look, by.owner[:]))
}

func (d *sqlite) come(ctx context.Context, tx *sql.Tx, limit int) error {
	var due [][2]int64
	rows, err := tx.QueryContext(ctx, d.box.Due, limit)
	err = each(rows, err, func(rows *sql.Rows) error {
		var at, seq int64
		err := rows.Scan(&at, &seq)
		due = append(due, [2]int64{at, seq})
		return err
	})
	if err != nil || len(due) == 0 {
		return err
	}
	var last int64
	var clock instant
	var shards int
	if err := tx.QueryRowContext(ctx, d.box.Number, len(due)).Scan(&last, &clock, &shards); err != nil {
		return err
	}
	if _, err := tx.ExecContext(ctx, d.box.Come, jsonText(due), last-int64(len(due)-1)); err != nil {
		return err
	}
	_, err = tx.ExecContext(ctx, d.box.Came, jsonText(due))
	return err
}
