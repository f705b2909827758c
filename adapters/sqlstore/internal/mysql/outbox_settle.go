package mysql

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/txonce/txonce/adapters/sqlstore/internal/engine"
	"github.com/txonce/txonce/internal/columns"
	"github.com/txonce/txonce/outbox/driver"
)

// Own locks the shards against other relays until the transaction ends, and fails if the hold has lost one of them.
func (d *DB) Own(ctx context.Context, q engine.Queryer, by *engine.Hold, tokens map[int]int64) error {
	mine, err := engine.Column[int](engine.Query(ctx, q, d.box.Own, tokenList(tokens), by.Hex()))
	if err == nil && len(mine) != len(tokens) {
		return driver.ErrLeaseLost
	}
	return err
}

// tokenList returns shards with their tokens as JSON. It sorts them, because all transactions lock shards in this
// order.
func tokenList(tokens map[int]int64) string {
	list := make([][2]int64, 0, len(tokens))
	for shard, token := range tokens {
		list = append(list, [2]int64{int64(shard), token})
	}
	slices.SortFunc(list, func(a, b [2]int64) int { return cmp.Compare(a[0], b[0]) })
	return engine.JSON(list)
}

func (d *DB) Settle(ctx context.Context, tx *sql.Tx, by *engine.Hold, tokens map[int]int64, do *engine.Outcomes) error {
	if err := d.applySettings(ctx, tx); err != nil {
		return err
	}
	if err := d.Own(ctx, tx, by, tokens); err != nil {
		return err
	}
	sent, deferred, parked := make([][]any, len(do.Sent)), make([][]any, len(do.Deferred)),
		make([][]any, len(do.Parked))
	for i := range do.Sent {
		o := &do.Sent[i]
		sent[i] = []any{o.Shard, o.Seq, nil, nil, nil, nil, nil, hexID(o)}
	}
	for i := range do.Deferred {
		o := &do.Deferred[i]
		deferred[i] = append(failure(o), engine.CeilMicros(o.Delay), nil, nil, hexID(o))
	}
	paused := make([][]any, len(do.Paused))
	for i := range do.Paused {
		o := &do.Paused[i]
		paused[i] = append(failure(o), engine.CeilMicros(o.Delay), nil, nil, hexID(o))
	}
	for i := range do.Parked {
		o := &do.Parked[i]
		parked[i] = append(failure(o), nil, int(o.ParkPolicy), nil, hexID(o))
	}
	var kept [][]any
	if d.cfg.KeepSent > 0 {
		kept = sent
	}
	for _, step := range [...]struct {
		query string
		list  [][]any
	}{
		{d.box.Keep, kept},
		{d.box.Sent, sent},
		{d.box.Park, parked},
		{d.box.Sent, parked},
		{d.box.HoldParked, parked},
		{d.box.Defer, deferred},
		{d.box.Hold, deferred},
		{d.box.Hold, paused},
	} {
		if len(step.list) == 0 {
			continue
		}
		if _, err := tx.ExecContext(ctx, step.query, engine.JSON(step.list)); err != nil {
			return err
		}
	}
	if err := d.deferTopics(ctx, tx, do.WholeTopics()); err != nil {
		return err
	}
	return d.followIn(ctx, tx, do.Follow)
}

func (d *DB) deferTopics(ctx context.Context, tx *sql.Tx, topics []driver.Outcome) error {
	for i := range topics {
		o := &topics[i]
		text, delay := hex.EncodeToString([]byte(columns.Error(o))), engine.CeilMicros(o.Delay)
		end := int64(math.MaxInt64)
		if err := tx.QueryRowContext(ctx, d.box.TopicEnd, o.Shard, o.Seq, engine.TopicRows-1).Scan(&end); err != nil &&
			!errors.Is(err, sql.ErrNoRows) {
			return err
		}
		if _, err := tx.ExecContext(ctx, d.box.DeferTopic, text, delay, o.Shard, o.Seq, end, o.Topic,
			engine.TopicRows); err != nil {
			return err
		}
		if _, err := tx.ExecContext(ctx, d.box.HoldTopic, delay, o.Shard, o.Seq, end, o.Topic,
			engine.TopicRows); err != nil {
			return err
		}
	}
	return nil
}

// failure returns the first columns of a row for a message that was not published.
func failure(o *driver.Outcome) []any {
	return []any{o.Shard, o.Seq, columns.Attempts(o), hex.EncodeToString([]byte(columns.Error(o)))}
}

func hexID(o *driver.Outcome) string { return hex.EncodeToString([]byte(o.ID)) }

// followIn moves messages behind parked ones to outbox_parked. The transaction has locked shards.
func (d *DB) followIn(ctx context.Context, tx *sql.Tx, shards []int) error {
	for _, shard := range shards {
		var list [][]any
		err := engine.Query(ctx, tx, d.box.Followers, shard, engine.FollowAtOnce).Each(func(rows engine.Row) error {
			var seq, behind, parkPolicy int64
			err := rows.Scan(&seq, &behind, &parkPolicy)
			list = append(list, []any{shard, seq, nil, nil, nil, parkPolicy, behind})
			return err
		})
		if err == nil && len(list) > 0 {
			if _, err = tx.ExecContext(ctx, d.box.Follow, engine.JSON(list)); err == nil {
				_, err = tx.ExecContext(ctx, d.box.Sent, engine.JSON(list))
			}
		}
		if err != nil {
			return fmt.Errorf("shard %d: messages behind parked ones: %w", shard, err)
		}
	}
	return nil
}

func (d *DB) Follow(ctx context.Context, tx *sql.Tx, by *engine.Hold, tokens map[int]int64) error {
	if err := d.applySettings(ctx, tx); err != nil {
		return err
	}
	if err := d.Own(ctx, tx, by, tokens); err != nil {
		return err
	}
	shards := slices.Collect(maps.Keys(tokens))
	return d.followIn(ctx, tx, shards)
}

// deadAfter is how long, in microseconds, the row of an expired relay is kept if no other relay takes its shards.
const deadAfter = int64(time.Minute / time.Microsecond)

func (d *DB) NeedsMaintenance(ctx context.Context, _ *engine.Hold,
	held map[int]int64,
) (behind []int, forget bool, err error) {
	if err := d.cfg.DB.QueryRowContext(ctx, d.box.NeedsMaintenance, deadAfter,
		engine.CeilMicros(d.cfg.KeepSent)).Scan(&forget); err != nil {
		return nil, false, err
	}
	behind, err = engine.Column[int](engine.Query(ctx, d.cfg.DB, d.box.Behind,
		engine.JSON(slices.Collect(maps.Keys(held)))))
	return behind, forget, err
}

func (d *DB) Forget(ctx context.Context, tx *sql.Tx) error {
	if err := d.applySettings(ctx, tx); err != nil {
		return err
	}
	if err := d.dropIdleHolds(ctx, tx); err != nil {
		return err
	}
	if err := d.dropExpired(ctx, tx, deadAfter); err != nil {
		return err
	}
	_, err := tx.ExecContext(ctx, d.box.ForgetSent, engine.CeilMicros(d.cfg.KeepSent), engine.ForgetAtOnce)
	return err
}

func (d *DB) dropIdleHolds(ctx context.Context, tx *sql.Tx) error {
	list, err := readHeld(engine.Query(ctx, tx, d.box.Idle, engine.ForgetAtOnce))
	for _, query := range [...]string{d.box.LockHeld, d.box.StillIdle} {
		if err == nil && len(list) > 0 {
			list, err = readHeld(engine.Query(ctx, tx, query, engine.JSON(list)))
		}
	}
	if err == nil && len(list) > 0 {
		_, err = tx.ExecContext(ctx, d.box.Unhold, engine.JSON(list))
	}
	return err
}

func readHeld(r engine.Rows) (list [][]any, _ error) {
	err := r.Each(func(rows engine.Row) error {
		var shard int
		var hash string
		err := rows.Scan(&shard, &hash)
		list = append(list, []any{shard, hash})
		return err
	})
	return list, err
}
