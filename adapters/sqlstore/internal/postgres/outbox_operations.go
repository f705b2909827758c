package postgres

import (
	"context"
	"database/sql"
	"maps"
	"slices"

	"github.com/txonce/txonce/adapters/sqlstore/internal/engine"
	"github.com/txonce/txonce/internal/pgrelay"
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
	behind, err = engine.Column[int](engine.Query(ctx, d.cfg.DB, d.box.relay.Behind, arrayOf(shards)))
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
	err := d.Reading(ctx, func(ctx context.Context, q engine.Queryer) (err error) {
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
		below, err = engine.Column[int16](engine.Query(ctx, q, d.box.relay.Below, uuid(by.Owner), arrayOf(c.Shards), arrayOf(c.Lows), arrayOf(c.Returned)))
		return err
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
	return sendSteps(ctx, tx, []pgrelay.Step{pgrelay.Follow(&d.box.relay, slices.Collect(maps.Keys(tokens)))})
}

func (d *DB) Forget(ctx context.Context, tx *sql.Tx) error {
	if err := engine.Exec(ctx, tx, []string{d.box.relay.Settings, d.box.relay.DropHolds, d.box.relay.DropDead}); err != nil {
		return err
	}
	_, err := tx.ExecContext(ctx, d.box.relay.Forget, d.keepSent(), engine.ForgetAtOnce)
	return err
}

func (d *DB) Parked(ctx context.Context, q engine.Queryer, filter outbox.ParkedFilter) ([]outbox.ParkedMessage, error) {
	return engine.ReadParked(engine.Query(ctx, q, d.box.relay.Parked, filter.After, filter.Topic, []byte(filter.OrderingKey), filter.Limit,
		filter.Error, engine.NullTime(filter.Since), engine.NullTime(filter.Until)))
}

func (d *DB) StatsStatements(context.Context, engine.Queryer) (*engine.StatsStatements, error) {
	return &engine.StatsStatements{
		Clock: d.box.relay.Clock, Count: d.box.look.Count, Relays: d.box.relay.Living, CountArgs: []any{engine.CountedPerShard},
	}, nil
}

func (d *DB) Repair(ctx context.Context, run engine.Run, seqs []int64, unpark bool) (n int, err error) {
	statement := d.box.relay.Discard
	if unpark {
		statement = d.box.relay.Unpark
	}
	return pgrelay.Repair(ctx, d.byItself(run), d.read, &d.box.relay, statement, seqs)
}

func (d *DB) Rescue(ctx context.Context, run engine.Run, shards []int) error {
	return pgrelay.Rescue(ctx, d.byItself(run), d.read, &d.box.relay, shards)
}
