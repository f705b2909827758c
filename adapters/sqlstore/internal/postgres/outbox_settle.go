package postgres

import (
	"context"
	"database/sql"

	"github.com/txonce/txonce/adapters/sqlstore/internal/engine"
	"github.com/txonce/txonce/internal/columns"
	"github.com/txonce/txonce/outbox"
)

// Own locks the shards against other relays until tx ends, and fails if the hold has lost one of them.
func (d *DB) Own(ctx context.Context, q engine.Queryer, by *engine.Hold, tokens map[int]int64) error {
	if err := d.settings(ctx, q); err != nil {
		return err
	}
	var shards, with array
	for shard, token := range tokens {
		shards.add(int64(shard))
		with.add(token)
	}
	var mine any
	var guard string
	err := q.QueryRowContext(ctx, d.box.relay.Check, uuid(by.Owner), shards.String(), with.String()).Scan(&mine, &guard)
	if err == nil && guard != "on" {
		return outbox.ErrLeaseLost
	}
	return err
}

// outcomeColumns are the columns of outcomes with the same verdict.
type outcomeColumns struct {
	n                                                  int
	shards, seqs, attempts, causes, delays, keepsOrder array
}

func columnsOf(outcomes []outbox.Outcome) (c outcomeColumns) {
	for i := range outcomes {
		c.add(&outcomes[i])
	}
	return c
}

func (c *outcomeColumns) add(o *outbox.Outcome) {
	c.n++
	c.shards.add(int64(o.Shard))
	c.seqs.add(o.Seq)
	if o.Verdict == outbox.Sent {
		return
	}
	c.attempts.add(int64(columns.Attempts(o)))
	c.causes.add(columns.Cause(o))
	c.delays.add(max(0, o.Delay.Seconds()))
	c.keepsOrder.add(int64(o.ParkPolicy))
}

func (d *DB) Settle(ctx context.Context, tx *sql.Tx, by *engine.Hold, tokens map[int]int64, do *engine.Outcomes) error {
	if err := d.Own(ctx, tx, by, tokens); err != nil {
		return err
	}
	sent, deferred, parked := columnsOf(do.Sent), columnsOf(do.Deferred), columnsOf(do.Parked)
	box := &d.box.relay
	gone := box.Sent
	if d.cfg.KeepSent > 0 {
		gone = box.Keep
	}
	for _, step := range [...]struct {
		n     int
		query string
		args  []any
	}{
		{sent.n, gone, []any{sent.shards.String(), sent.seqs.String()}},
		{parked.n, box.Park, []any{
			parked.shards.String(), parked.seqs.String(), parked.attempts.String(), parked.causes.String(), parked.keepsOrder.String(),
		}},
		{parked.n, box.HoldParked, []any{parked.seqs.String()}},
		{deferred.n, box.Defer, []any{
			deferred.shards.String(), deferred.seqs.String(), deferred.attempts.String(), deferred.causes.String(), deferred.delays.String(),
		}},
		{deferred.n, box.HoldDeferred, []any{deferred.shards.String(), deferred.seqs.String(), deferred.delays.String()}},
		{len(do.Follow), box.Follow, []any{arrayOf(do.Follow), engine.FollowAtOnce, engine.FollowAtOnce}},
	} {
		if step.n == 0 {
			continue
		}
		if _, err := tx.ExecContext(ctx, step.query, step.args...); err != nil {
			return err
		}
	}
	return nil
}
