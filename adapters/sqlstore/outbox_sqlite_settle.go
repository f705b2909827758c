package sqlstore

import (
	"context"
	"database/sql"
	"fmt"
	"slices"

	"github.com/txonce/txonce/outbox"
)

// own needs no lock: while a transaction writes nobody can take shards.
func (d *sqlite) own(ctx context.Context, q queryer, by *outboxHold, tokens map[int]int64) error {
	list := make([][2]int64, 0, len(tokens))
	for shard, token := range tokens {
		list = append(list, [2]int64{int64(shard), token})
	}
	var n int
	err := q.QueryRowContext(ctx, d.box.Own, by.owner[:], jsonText(list)).Scan(&n)
	if err == nil && n != len(list) {
		return outbox.ErrLeaseLost
	}
	return err
}

func (d *sqlite) settleLeases(ctx context.Context, tx *sql.Tx, by *outboxHold, tokens map[int]int64, outcomes []outbox.Outcome, idle []int) error {
	if err := d.own(ctx, tx, by, tokens); err != nil {
		return err
	}
	var sent [][2]int64
	var deferred [][]any
	var parked []*outbox.Outcome
	for i := range outcomes {
		switch o := &outcomes[i]; o.Verdict {
		case outbox.Sent:
			sent = append(sent, [2]int64{int64(o.Shard), o.Seq})
		case outbox.Deferred:
			deferred = append(deferred, []any{o.Shard, o.Seq, attempts(o), outboxCause(o.Cause), ceilMicros(o.Delay)})
		case outbox.Parked:
			parked = append(parked, o)
		case outbox.Returned:
		}
	}
	if err := d.settleSent(ctx, tx, sent); err != nil {
		return err
	}
	if len(deferred) > 0 {
		for _, query := range [...]string{d.box.Defer, d.box.Hold} {
			if _, err := tx.ExecContext(ctx, query, jsonText(deferred)); err != nil {
				return err
			}
		}
	}
	return d.settleParked(ctx, tx, parked, idle)
}

func (d *sqlite) settleSent(ctx context.Context, tx *sql.Tx, sent [][2]int64) error {
	if len(sent) == 0 {
		return nil
	}
	list := jsonText(sent)
	if d.cfg.Outbox.KeepSent > 0 {
		if _, err := tx.ExecContext(ctx, d.box.Keep, list); err != nil {
			return err
		}
	}
	_, err := tx.ExecContext(ctx, d.box.Sent, list)
	return err
}

func (d *sqlite) settleParked(ctx context.Context, tx *sql.Tx, parked []*outbox.Outcome, idle []int) error {
	var follow []int
	for _, o := range parked {
		for _, do := range [...]struct {
			query string
			args  []any
		}{
			{d.box.Park, []any{o.Shard, o.Seq, attempts(o), outboxCause(o.Cause), int(o.ParkPolicy)}},
			{d.box.Unpend, []any{o.Shard, o.Seq}},
			{d.box.HoldParked, []any{o.Seq}},
		} {
			if _, err := tx.ExecContext(ctx, do.query, do.args...); err != nil {
				return err
			}
		}
		if o.Key != "" && slices.Contains(idle, o.Shard) && !slices.Contains(follow, o.Shard) {
			follow = append(follow, o.Shard)
		}
	}
	return d.followIn(ctx, tx, follow)
}

func (d *sqlite) followIn(ctx context.Context, tx *sql.Tx, shards []int) error {
	for _, shard := range shards {
		seqs, err := readSeqs(tx.QueryContext(ctx, d.box.Follow, shard, followAtOnce))
		if err == nil && len(seqs) > 0 {
			_, err = tx.ExecContext(ctx, d.box.Unfollow, shard, jsonText(seqs))
		}
		if err != nil {
			return fmt.Errorf("shard %d: messages behind parked ones: %w", shard, err)
		}
	}
	return nil
}

func (d *sqlite) follow(ctx context.Context, tx *sql.Tx, by *outboxHold, tokens map[int]int64) error {
	if err := d.own(ctx, tx, by, tokens); err != nil {
		return err
	}
	shards := make([]int, 0, len(tokens))
	for shard := range tokens {
		shards = append(shards, shard)
	}
	return d.followIn(ctx, tx, shards)
}

func (d *sqlite) untidy(ctx context.Context, shards []int) (behind []int, forget bool, err error) {
	if err := d.cfg.DB.QueryRowContext(ctx, d.box.Untidy, ceilMicros(d.cfg.Outbox.KeepSent)).Scan(&forget); err != nil {
		return nil, false, err
	}
	behind, err = readShards(d.cfg.DB.QueryContext(ctx, d.box.Behind, jsonText(shards)))
	return behind, forget, err
}

func (d *sqlite) forget(ctx context.Context, tx *sql.Tx) error {
	if _, err := tx.ExecContext(ctx, d.box.Unhold); err != nil {
		return err
	}
	_, err := tx.ExecContext(ctx, d.box.ForgetSent, ceilMicros(d.cfg.Outbox.KeepSent), forgetAtOnce)
	return err
}

func (d *sqlite) collided(error) bool { return false } // writers queue

func (d *sqlite) notify(context.Context) {} // other processes poll
