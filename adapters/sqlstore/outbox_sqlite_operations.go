package sqlstore

import (
	"context"
	"database/sql"

	"github.com/txonce/txonce/outbox"
)

func (d *sqlite) parked(ctx context.Context, q queryer, filter outbox.ParkedFilter) (parked []outbox.ParkedMessage, err error) {
	var key any
	if filter.Key != "" {
		key = []byte(filter.Key)
	}
	rows, err := q.QueryContext(ctx, d.box.Parked, filter.After, filter.Topic, key, filter.Limit)
	err = each(rows, err, func(rows *sql.Rows) error {
		m, err := scanParked(rows)
		parked = append(parked, m)
		return err
	})
	return parked, err
}

// outboxKey is a key and its shard.
type outboxKey struct {
	shard int
	key   string
}

// unpark leaves those alone that wait behind another one: they go on with it, in its transaction.
func (d *sqlite) unpark(ctx context.Context, tx *sql.Tx, seqs []int64) (int, error) {
	n, keys, err := d.listed(ctx, tx, seqs)
	if err != nil {
		return 0, err
	}
	back, err := readSeqs(tx.QueryContext(ctx, d.box.Unpark, jsonText(seqs)))
	if err != nil {
		return 0, err
	}
	if _, err := tx.ExecContext(ctx, d.box.Discard, jsonText(back)); err != nil {
		return 0, err
	}
	return n, d.release(ctx, tx, keys)
}

func (d *sqlite) discard(ctx context.Context, tx *sql.Tx, seqs []int64) (int, error) {
	n, keys, err := d.listed(ctx, tx, seqs)
	if err != nil {
		return 0, err
	}
	if _, err := tx.ExecContext(ctx, d.box.Discard, jsonText(seqs)); err != nil {
		return 0, err
	}
	return n, d.release(ctx, tx, keys)
}

// listed takes the write lock, and returns how many of seqs are parked and of which keys.
func (d *sqlite) listed(ctx context.Context, tx *sql.Tx, seqs []int64) (n int, keys map[outboxKey]struct{}, err error) {
	keys = make(map[outboxKey]struct{})
	rows, err := tx.QueryContext(ctx, d.box.Listed, jsonText(seqs))
	err = each(rows, err, func(rows *sql.Rows) error {
		var k outboxKey
		var key []byte
		if err := rows.Scan(&k.shard, &key); err != nil {
			return err
		}
		n++
		if k.key = string(key); k.key != "" {
			keys[k] = struct{}{}
		}
		return nil
	})
	return n, keys, err
}

// release lets go on what no longer has a parked message before it.
func (d *sqlite) release(ctx context.Context, tx *sql.Tx, keys map[outboxKey]struct{}) error {
	for k := range keys {
		back, err := readSeqs(tx.QueryContext(ctx, d.box.Release, k.shard, []byte(k.key)))
		if err != nil {
			return err
		}
		if _, err := tx.ExecContext(ctx, d.box.Discard, jsonText(back)); err != nil {
			return err
		}
		if _, err := tx.ExecContext(ctx, d.box.Behead, k.shard, []byte(k.key)); err != nil {
			return err
		}
	}
	_, err := tx.ExecContext(ctx, d.box.Unhold)
	return err
}

func (d *sqlite) stats(ctx context.Context, q queryer) (outbox.Stats, error) {
	st := outboxStats{Stats: outbox.Stats{Topics: make(map[string]outbox.TopicStats)}}
	var clock instant
	if err := q.QueryRowContext(ctx, d.box.Clock).Scan(&clock, &st.HeldKeys); err != nil {
		return st.Stats, err
	}
	st.Now = clock.Time
	for _, read := range []struct {
		query string
		args  []any
		scan  func(*sql.Rows) error
	}{
		{d.box.Pending, []any{countedPerShard}, st.scanPending},
		{d.box.Delayed, nil, st.scanDelayed},
		{d.box.ParkedTopics, nil, st.scanParked},
		{d.box.Relays, nil, st.scanRelay},
	} {
		rows, err := q.QueryContext(ctx, read.query, read.args...)
		if err := each(rows, err, read.scan); err != nil {
			return st.Stats, err
		}
	}
	st.estimate()
	return st.Stats, nil
}
