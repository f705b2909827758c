package sqlstore

import (
	"context"
	"database/sql"
	"slices"

	"github.com/txonce/txonce/outbox"
)

// own locks the shards against takeovers until the end of tx, and fails where they are no longer the hold's.
func (d *postgres) own(ctx context.Context, q queryer, by *outboxHold, tokens map[int]int64) error {
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
	err := q.QueryRowContext(ctx, d.box.relay.Check, uuid(by.owner), shards.String(), with.String()).Scan(&mine, &guard)
	if err == nil && guard != "on" {
		return outbox.ErrLeaseLost
	}
	return err
}

func (d *postgres) collided(err error) bool { return sqlState(err) == "40P01" }

// outcomeColumns are outcomes of one verdict.
type outcomeColumns struct {
	n                                                  int
	shards, seqs, attempts, causes, delays, keepsOrder array
}

func (c *outcomeColumns) add(o *outbox.Outcome) {
	c.n++
	c.shards.add(int64(o.Shard))
	c.seqs.add(o.Seq)
	if o.Verdict == outbox.Sent {
		return
	}
	c.attempts.add(int64(attempts(o)))
	c.causes.add(outboxCause(o.Cause))
	c.delays.add(max(0, o.Delay.Seconds()))
	c.keepsOrder.add(int64(o.ParkPolicy))
}

func (d *postgres) settleLeases(ctx context.Context, tx *sql.Tx, by *outboxHold, tokens map[int]int64, outcomes []outbox.Outcome, idle []int) error {
	if err := d.own(ctx, tx, by, tokens); err != nil {
		return err
	}
	var sent, deferred, parked outcomeColumns
	var follow []int
	for i := range outcomes {
		switch o := &outcomes[i]; o.Verdict {
		case outbox.Sent:
			sent.add(o)
		case outbox.Deferred:
			deferred.add(o)
		case outbox.Parked:
			parked.add(o)
			if o.Key != "" && o.ParkPolicy != outbox.SkipMessage && slices.Contains(idle, o.Shard) && !slices.Contains(follow, o.Shard) {
				follow = append(follow, o.Shard)
			}
		case outbox.Returned:
		}
	}
	box := &d.box.relay
	gone := box.Sent
	if d.cfg.Outbox.KeepSent > 0 {
		gone = box.Keep
	}
	for _, do := range [...]struct {
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
		{len(follow), box.Follow, []any{numbers(follow), followAtOnce, followAtOnce}},
	} {
		if do.n == 0 {
			continue
		}
		if _, err := tx.ExecContext(ctx, do.query, do.args...); err != nil {
			return err
		}
	}
	return nil
}
