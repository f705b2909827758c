package sqlite

import (
	"context"
	"database/sql"
	"fmt"
	"maps"
	"slices"

	"github.com/txonce/txonce/adapters/sqlstore/internal/engine"
	"github.com/txonce/txonce/internal/columns"
	"github.com/txonce/txonce/outbox/driver"
)

// Own locks nothing: while a transaction writes, no other session can take shards.
func (d *DB) Own(ctx context.Context, q engine.Queryer, by *engine.Hold, tokens map[int]int64) error {
	list := make([][2]int64, 0, len(tokens))
	for shard, token := range tokens {
		list = append(list, [2]int64{int64(shard), token})
	}
	var n int
	err := q.QueryRowContext(ctx, d.box.Own, by.Owner[:], engine.JSON(list)).Scan(&n)
	if err == nil && n != len(list) {
		return driver.ErrLeaseLost
	}
	return err
}

func (d *DB) Settle(ctx context.Context, tx *sql.Tx, by *engine.Hold, tokens map[int]int64, do *engine.Outcomes) error {
	if err := d.Own(ctx, tx, by, tokens); err != nil {
		return err
	}
	if err := d.settleSent(ctx, tx, do.Sent); err != nil {
		return err
	}
	if len(do.Deferred) > 0 {
		if err := engine.Exec(ctx, tx, []string{d.box.Defer, d.box.Hold}, failures(do.Deferred)); err != nil {
			return err
		}
	}
	if len(do.Paused) > 0 {
		if err := engine.Exec(ctx, tx, []string{d.box.Hold}, failures(do.Paused)); err != nil {
			return err
		}
	}
	for _, o := range do.WholeTopics() {
		for _, query := range [...]string{d.box.DeferTopic, d.box.HoldTopic} {
			if _, err := tx.ExecContext(ctx, query, o.Shard, o.Seq, o.Topic, engine.CeilMicros(o.Delay),
				columns.Error(&o), engine.TopicRows); err != nil {
				return err
			}
		}
	}
	if err := d.settleParked(ctx, tx, do.Parked); err != nil {
		return err
	}
	return d.followIn(ctx, tx, do.Follow)
}

// failures returns the list that Defer and Hold take.
func failures(outcomes []driver.Outcome) string {
	list := make([][]any, len(outcomes))
	for i := range outcomes {
		o := &outcomes[i]
		list[i] = []any{o.Shard, o.Seq, columns.Attempts(o), columns.Error(o), engine.CeilMicros(o.Delay)}
	}
	return engine.JSON(list)
}

func (d *DB) settleSent(ctx context.Context, tx *sql.Tx, sent []driver.Outcome) error {
	if len(sent) == 0 {
		return nil
	}
	pairs := make([][2]int64, len(sent))
	for i, o := range sent {
		pairs[i] = [2]int64{int64(o.Shard), o.Seq}
	}
	statements := []string{d.box.Sent}
	if d.cfg.KeepSent > 0 {
		statements = []string{d.box.Keep, d.box.Sent}
	}
	return engine.Exec(ctx, tx, statements, engine.JSON(pairs))
}

func (d *DB) settleParked(ctx context.Context, tx *sql.Tx, parked []driver.Outcome) error {
	for i := range parked {
		o := &parked[i]
		for _, do := range [...]struct {
			query string
			args  []any
		}{
			{d.box.Park, []any{o.Shard, o.Seq, columns.Attempts(o), columns.Error(o), int(o.ParkPolicy)}},
			{d.box.Unpend, []any{o.Shard, o.Seq}},
			{d.box.HoldParked, []any{o.Seq}},
		} {
			if _, err := tx.ExecContext(ctx, do.query, do.args...); err != nil {
				return err
			}
		}
	}
	return nil
}

func (d *DB) followIn(ctx context.Context, tx *sql.Tx, shards []int) error {
	for _, shard := range shards {
		seqs, err := engine.Column[int64](engine.Query(ctx, tx, d.box.Follow, shard, engine.FollowAtOnce))
		if err == nil && len(seqs) > 0 {
			_, err = tx.ExecContext(ctx, d.box.Unfollow, shard, engine.JSON(seqs))
		}
		if err != nil {
			return fmt.Errorf("shard %d: messages behind parked ones: %w", shard, err)
		}
	}
	return nil
}

func (d *DB) Follow(ctx context.Context, tx *sql.Tx, by *engine.Hold, tokens map[int]int64) error {
	if err := d.Own(ctx, tx, by, tokens); err != nil {
		return err
	}
	shards := slices.Collect(maps.Keys(tokens))
	return d.followIn(ctx, tx, shards)
}

func (d *DB) NeedsMaintenance(ctx context.Context, _ *engine.Hold,
	held map[int]int64,
) (behind []int, forget bool, err error) {
	if err := d.cfg.DB.QueryRowContext(ctx, d.box.NeedsMaintenance,
		engine.CeilMicros(d.cfg.KeepSent)).Scan(&forget); err != nil {
		return nil, false, err
	}
	behind, err = engine.Column[int](engine.Query(ctx, d.cfg.DB, d.box.Behind,
		engine.JSON(slices.Collect(maps.Keys(held)))))
	return behind, forget, err
}

func (d *DB) Forget(ctx context.Context, tx *sql.Tx) error {
	if _, err := tx.ExecContext(ctx, d.box.Unhold); err != nil {
		return err
	}
	_, err := tx.ExecContext(ctx, d.box.ForgetSent, engine.CeilMicros(d.cfg.KeepSent), engine.ForgetAtOnce)
	return err
}

func (d *DB) Notify(context.Context) {} // SQLite has no NOTIFY; relays of other processes poll
