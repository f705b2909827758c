package sqlite

import (
	"context"
	"database/sql"

	"github.com/txonce/txonce/adapters/sqlstore/internal/engine"
	"github.com/txonce/txonce/outbox"
)

func (d *DB) Parked(ctx context.Context, q engine.Queryer, filter outbox.ParkedFilter) ([]outbox.ParkedMessage, error) {
	var key any
	if filter.OrderingKey != "" {
		key = []byte(filter.OrderingKey)
	}
	return engine.ReadParked(engine.Query(ctx, q, d.box.Parked, filter.After, filter.Topic, key,
		filter.Error, engine.Since(filter.Since), engine.Until(filter.Until), filter.Limit))
}

// parkedKey is a key and its shard.
type parkedKey struct {
	shard int
	key   string
}

// Repair runs in one transaction and also releases all messages behind seqs: if it released only a part, later messages
// would overtake the rest. Unpark skips messages that wait behind another parked one: releasing that one also releases
// them.
func (d *DB) Repair(ctx context.Context, run engine.Run, seqs []int64, unpark bool) (n int, err error) {
	err = run(ctx, func(ctx context.Context, tx *sql.Tx) error {
		var keys map[parkedKey]struct{}
		if n, keys, err = d.listed(ctx, tx, seqs); err != nil || n == 0 {
			return err
		}
		gone := seqs
		if unpark {
			if gone, err = engine.Column[int64](engine.Query(ctx, tx, d.box.Unpark, engine.JSON(seqs))); err != nil {
				return err
			}
		}
		if _, err := tx.ExecContext(ctx, d.box.Discard, engine.JSON(gone)); err != nil {
			return err
		}
		return d.release(ctx, tx, keys)
	})
	if err != nil {
		return 0, err
	}
	return n, nil
}

// listed counts the parked messages among seqs, and returns their keys.
func (d *DB) listed(ctx context.Context, tx *sql.Tx, seqs []int64) (n int, keys map[parkedKey]struct{}, err error) {
	keys = make(map[parkedKey]struct{})
	err = engine.Query(ctx, tx, d.box.Listed, engine.JSON(seqs)).Each(func(rows engine.Row) error {
		var k parkedKey
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

// release returns messages of keys to the outbox that have no parked message before them any more.
func (d *DB) release(ctx context.Context, tx *sql.Tx, keys map[parkedKey]struct{}) error {
	for k := range keys {
		back, err := engine.Column[int64](engine.Query(ctx, tx, d.box.Release, k.shard, []byte(k.key)))
		if err != nil {
			return err
		}
		if _, err := tx.ExecContext(ctx, d.box.Discard, engine.JSON(back)); err != nil {
			return err
		}
		if _, err := tx.ExecContext(ctx, d.box.Behead, k.shard, []byte(k.key)); err != nil {
			return err
		}
	}
	_, err := tx.ExecContext(ctx, d.box.Unhold)
	return err
}

func (d *DB) StatsStatements(context.Context, engine.Queryer) (*engine.StatsStatements, error) {
	return &engine.StatsStatements{
		Clock: d.box.Clock, Count: d.box.Count, Relays: d.box.Relays, CountArgs: []any{engine.CountedPerShard},
	}, nil
}
