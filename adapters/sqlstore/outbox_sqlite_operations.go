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
	rows, err := q.QueryContext(ctx, d.box.Parked, filter.After, filter.Topic, key,
		filter.Cause, since(filter.Since), until(filter.Until), filter.Limit)
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

// repair is one transaction, with all that comes back by it: where only a part did, later messages would pass the rest. Unpark
// leaves those alone that wait behind another one, as they go on with it.
func (d *sqlite) repair(ctx context.Context, run outboxRun, seqs []int64, unpark bool) (n int, err error) {
	err = run(ctx, func(ctx context.Context, tx *sql.Tx) error {
		var keys map[outboxKey]struct{}
		if n, keys, err = d.listed(ctx, tx, seqs); err != nil || n == 0 {
			return err
		}
		gone := seqs
		if unpark {
			if gone, err = readSeqs(tx.QueryContext(ctx, d.box.Unpark, jsonText(seqs))); err != nil {
				return err
			}
		}
		if _, err := tx.ExecContext(ctx, d.box.Discard, jsonText(gone)); err != nil {
			return err
		}
		return d.release(ctx, tx, keys)
	})
	if err != nil {
		return 0, err
	}
	return n, nil
}

func (d *sqlite) rescue(context.Context, outboxRun, []int) error { return nil } // repair leaves nothing half-done

// listed returns how many of seqs are parked and of which keys.
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

func (d *sqlite) statsStatements(context.Context, queryer) (*outboxStatsStatements, error) {
	return &outboxStatsStatements{
		Clock: d.box.Clock, Count: d.box.Count, Relays: d.box.Relays, CountArgs: []any{countedPerShard},
	}, nil
}
