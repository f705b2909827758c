package postgres

import (
	"context"
	"database/sql"
	"maps"
	"slices"

	"github.com/txonce/txonce/adapters/sqlstore/internal/engine"
	"github.com/txonce/txonce/outbox"
)

// NeedsMaintenance also calls tendMarks.
func (d *DB) NeedsMaintenance(ctx context.Context, by *engine.Hold, held map[int]int64) (behind []int, forget bool, err error) {
	shards := slices.Sorted(maps.Keys(held))
	if err := d.tendMarks(ctx, by, shards, held); err != nil {
		return nil, false, err
	}
	if err := d.cfg.DB.QueryRowContext(ctx, d.box.look.NeedsMaintenance, d.keepSent()).Scan(&forget); err != nil {
		return nil, false, err
	}
	behind, err = engine.ReadShards(engine.Query(ctx, d.cfg.DB, d.box.relay.Behind, arrayOf(shards)))
	return behind, forget, err
}

// tendMarks moves the watermark, and searches some of shards for messages below the lows of by.Marks.
func (d *DB) tendMarks(ctx context.Context, by *engine.Hold, shards []int, tokens map[int]int64) error {
	c := by.Marks.NextCheck(columnsOfShards(shards, tokens))
	move := by.Marks.Behind() && by.Sequence.TryLock() // otherwise a Lease moves it
	if move {
		defer by.Sequence.Unlock()
		by.Marks.Moving()
	}
	if !move && len(c.Shards) == 0 {
		return nil
	}
	var below []int16
	err := d.Reading(ctx, func(ctx context.Context, q engine.Queryer) error {
		if move {
			var last, server int64
			if err := q.QueryRowContext(ctx, d.box.relay.Last).Scan(&last, &server); err != nil {
				return err
			}
			if err := d.moveTo(ctx, q, by, server, last); err != nil {
				return err
			}
		}
		if len(c.Shards) == 0 {
			return nil
		}
		return engine.Query(ctx, q, d.box.relay.Below, uuid(by.Owner), arrayOf(c.Shards), arrayOf(c.Lows), arrayOf(c.Returned)).Each(func(rows *sql.Rows) error {
			var n int16
			err := rows.Scan(&n)
			below = append(below, n)
			return err
		})
	})
	if err == nil {
		by.Marks.Checked(ctx, c, below)
	}
	return err
}

// keepSent returns Config.KeepSent in seconds.
func (d *DB) keepSent() float64 { return d.cfg.KeepSent.Seconds() }

func (d *DB) Follow(ctx context.Context, tx *sql.Tx, by *engine.Hold, tokens map[int]int64) error {
	if err := d.Own(ctx, tx, by, tokens); err != nil {
		return err
	}
	shards := slices.Collect(maps.Keys(tokens))
	_, err := tx.ExecContext(ctx, d.box.relay.Follow, arrayOf(shards), engine.FollowAtOnce, engine.FollowAtOnce)
	return err
}

func (d *DB) Forget(ctx context.Context, tx *sql.Tx) error {
	for _, do := range [...]struct {
		query string
		args  []any
	}{
		{d.box.relay.Settings, nil},
		{d.box.relay.DropHolds, nil},
		{d.box.relay.DropDead, nil},
		{d.box.relay.Forget, []any{d.keepSent(), engine.ForgetAtOnce}},
	} {
		if _, err := tx.ExecContext(ctx, do.query, do.args...); err != nil {
			return err
		}
	}
	return nil
}

func (d *DB) Parked(ctx context.Context, q engine.Queryer, filter outbox.ParkedFilter) ([]outbox.ParkedMessage, error) {
	return engine.ReadParked(engine.Query(ctx, q, d.box.relay.Parked, filter.After, filter.Topic, []byte(filter.Key), filter.Limit,
		filter.Cause, engine.NullTime(filter.Since), engine.NullTime(filter.Until)))
}

func (d *DB) StatsStatements(context.Context, engine.Queryer) (*engine.StatsStatements, error) {
	return &engine.StatsStatements{
		Clock: d.box.relay.Clock, Count: d.box.look.Count, Relays: d.box.relay.Living, CountArgs: []any{engine.CountedPerShard},
	}, nil
}

// releaseAtOnce limits how many messages are searched at once, and how many messages of each key one transaction releases.
const releaseAtOnce = 1000

// Repair releases the messages that wait behind seqs, shard by shard. If the process dies in between, Rescue does the rest.
func (d *DB) Repair(ctx context.Context, run engine.Run, seqs []int64, unpark bool) (n int, err error) {
	statement := d.box.relay.Discard
	if unpark {
		statement = d.box.relay.Unpark
	}
	for len(seqs) > 0 {
		some := seqs[:min(len(seqs), releaseAtOnce)]
		seqs = seqs[len(some):]
		found, err := d.find(ctx, some)
		if err != nil {
			return n, err
		}
		for shard, p := range found {
			err := d.release(ctx, run, shard, p.keys, func(ctx context.Context, tx *sql.Tx) error {
				_, err := tx.ExecContext(ctx, statement, shard, p.seqs.String())
				return err
			})
			if err != nil {
				return n, err
			}
			n += p.n
		}
	}
	return n, nil
}

// foundParked are the parked messages of one shard.
type foundParked struct {
	n    int
	seqs array
	keys map[string]struct{}
}

func (d *DB) find(ctx context.Context, seqs []int64) (map[int]*foundParked, error) {
	var list array
	for _, seq := range seqs {
		list.add(seq)
	}
	found := make(map[int]*foundParked)
	return found, engine.Query(ctx, d.cfg.DB, d.box.relay.Find, list.String()).Each(func(rows *sql.Rows) error {
		var seq int64
		var shard int
		var key []byte
		if err := rows.Scan(&seq, &shard, &key); err != nil {
			return err
		}
		p := found[shard]
		if p == nil {
			p = &foundParked{keys: make(map[string]struct{})}
			found[shard] = p
		}
		p.n++
		p.seqs.add(seq)
		if key != nil {
			p.keys[string(key)] = struct{}{}
		}
		return nil
	})
}

// release runs first, and then releases messages that have no parked message before them any more, in as many transactions as
// it needs. Each transaction leaves a hold on the first message that is not released yet, so a crash in between keeps the
// order.
func (d *DB) release(
	ctx context.Context, run engine.Run, shard int, keys map[string]struct{}, first func(context.Context, *sql.Tx) error,
) error {
	var list array
	for key := range keys {
		list.add([]byte(key))
	}
	for {
		var back int64
		err := run(ctx, func(ctx context.Context, tx *sql.Tx) error {
			if err := d.settings(ctx, tx); err != nil {
				return err
			}
			if _, err := tx.ExecContext(ctx, d.box.relay.LockShard, shard); err != nil {
				return err
			}
			if first != nil {
				if err := first(ctx, tx); err != nil {
					return err
				}
			}
			done, err := tx.ExecContext(ctx, d.box.relay.Release, shard, list.String(), releaseAtOnce)
			if err != nil {
				return err
			}
			if back, err = done.RowsAffected(); err != nil {
				return err
			}
			_, err = tx.ExecContext(ctx, d.box.relay.Rehold, shard, list.String())
			return err
		})
		if err != nil || back < releaseAtOnce {
			return err
		}
		first = nil
	}
}

func (d *DB) Rescue(ctx context.Context, run engine.Run, shards []int) error {
	stranded := make(map[int]map[string]struct{})
	err := engine.Query(ctx, d.cfg.DB, d.box.relay.Stranded, arrayOf(shards), releaseAtOnce).Each(func(rows *sql.Rows) error {
		var shard int
		var key []byte
		err := rows.Scan(&shard, &key)
		if stranded[shard] == nil {
			stranded[shard] = make(map[string]struct{})
		}
		stranded[shard][string(key)] = struct{}{}
		return err
	})
	if err != nil {
		return err
	}
	for shard, keys := range stranded {
		if err := d.release(ctx, run, shard, keys, nil); err != nil {
			return err
		}
	}
	return nil
}
