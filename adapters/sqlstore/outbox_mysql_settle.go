package sqlstore

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/hex"
	"fmt"
	"slices"
	"time"

	"github.com/txonce/txonce/outbox"
)

// own locks the shards against takeovers until the end of a transaction, and fails where they are no longer the hold's.
func (d *mysql) own(ctx context.Context, q queryer, by *outboxHold, tokens map[int]int64) error {
	mine, err := readShards(q.QueryContext(ctx, d.box.Own, mysqlTokens(tokens), by.hex()))
	if err == nil && len(mine) != len(tokens) {
		return outbox.ErrLeaseLost
	}
	return err
}

func (d *mysql) collided(err error) bool { return mysqlNumber(err) == deadlocked }

const deadlocked = 1213

// mysqlTokens is a list of shards and their tokens, in the one order in which shards are locked.
func mysqlTokens(tokens map[int]int64) string {
	list := make([][2]int64, 0, len(tokens))
	for shard, token := range tokens {
		list = append(list, [2]int64{int64(shard), token})
	}
	slices.SortFunc(list, func(a, b [2]int64) int { return cmp.Compare(a[0], b[0]) })
	return jsonText(list)
}

func (d *mysql) settleLeases(ctx context.Context, tx *sql.Tx, by *outboxHold, tokens map[int]int64, outcomes []outbox.Outcome, idle []int) error {
	if err := d.hasten(ctx, tx); err != nil {
		return err
	}
	if err := d.own(ctx, tx, by, tokens); err != nil {
		return err
	}
	var sent, deferred, parked [][]any
	var follow []int
	for i := range outcomes {
		o := &outcomes[i]
		row := []any{o.Shard, o.Seq}
		if o.Verdict != outbox.Sent {
			row = append(row, attempts(o), hex.EncodeToString([]byte(outboxCause(o.Cause))))
		}
		switch o.Verdict {
		case outbox.Sent:
			sent = append(sent, row)
		case outbox.Deferred:
			deferred = append(deferred, append(row, ceilMicros(o.Delay)))
		case outbox.Parked:
			parked = append(parked, append(row, nil, int(o.ParkPolicy)))
			if o.Key != "" && o.ParkPolicy != outbox.SkipMessage && slices.Contains(idle, o.Shard) && !slices.Contains(follow, o.Shard) {
				follow = append(follow, o.Shard)
			}
		case outbox.Returned:
		}
	}
	var kept [][]any
	if d.cfg.Outbox.KeepSent > 0 {
		kept = sent
	}
	for _, do := range [...]struct {
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
	} {
		if len(do.list) == 0 {
			continue
		}
		if _, err := tx.ExecContext(ctx, do.query, jsonText(do.list)); err != nil {
			return err
		}
	}
	return d.followIn(ctx, tx, follow)
}

// followIn moves what stands behind parked messages, of shards that this transaction has locked.
func (d *mysql) followIn(ctx context.Context, tx *sql.Tx, shards []int) error {
	for _, shard := range shards {
		var list [][]any
		rows, err := tx.QueryContext(ctx, d.box.Followers, shard, followAtOnce)
		err = each(rows, err, func(rows *sql.Rows) error {
			var seq, behind, parkPolicy int64
			err := rows.Scan(&seq, &behind, &parkPolicy)
			list = append(list, []any{shard, seq, nil, nil, nil, parkPolicy, behind})
			return err
		})
		if err == nil && len(list) > 0 {
			if _, err = tx.ExecContext(ctx, d.box.Follow, jsonText(list)); err == nil {
				_, err = tx.ExecContext(ctx, d.box.Sent, jsonText(list))
			}
		}
		if err != nil {
			return fmt.Errorf("shard %d: messages behind parked ones: %w", shard, err)
		}
	}
	return nil
}

func (d *mysql) follow(ctx context.Context, tx *sql.Tx, by *outboxHold, tokens map[int]int64) error {
	if err := d.hasten(ctx, tx); err != nil {
		return err
	}
	if err := d.own(ctx, tx, by, tokens); err != nil {
		return err
	}
	shards := make([]int, 0, len(tokens))
	for shard := range tokens {
		shards = append(shards, shard)
	}
	return d.followIn(ctx, tx, shards)
}

// mysqlDead is how long rows of relays whose time is over stay, where nobody takes their shards.
const mysqlDead = int64(time.Minute / time.Microsecond)

func (d *mysql) untidy(ctx context.Context, shards []int) (behind []int, forget bool, err error) {
	if err := d.cfg.DB.QueryRowContext(ctx, d.box.Untidy, mysqlDead, ceilMicros(d.cfg.Outbox.KeepSent)).Scan(&forget); err != nil {
		return nil, false, err
	}
	behind, err = readShards(d.cfg.DB.QueryContext(ctx, d.box.Behind, jsonText(shards)))
	return behind, forget, err
}

func (d *mysql) forget(ctx context.Context, tx *sql.Tx) error {
	if err := d.hasten(ctx, tx); err != nil {
		return err
	}
	if err := d.unhold(ctx, tx); err != nil {
		return err
	}
	if err := d.bury(ctx, tx, mysqlDead); err != nil {
		return err
	}
	_, err := tx.ExecContext(ctx, d.box.ForgetSent, ceilMicros(d.cfg.Outbox.KeepSent), forgetAtOnce)
	return err
}

func (d *mysql) unhold(ctx context.Context, tx *sql.Tx) error {
	list, err := readHeld(tx.QueryContext(ctx, d.box.Idle, forgetAtOnce))
	for _, query := range [...]string{d.box.LockHeld, d.box.StillIdle} {
		if err == nil && len(list) > 0 {
			list, err = readHeld(tx.QueryContext(ctx, query, jsonText(list)))
		}
	}
	if err == nil && len(list) > 0 {
		_, err = tx.ExecContext(ctx, d.box.Unhold, jsonText(list))
	}
	return err
}

func readHeld(rows *sql.Rows, err error) (list [][]any, _ error) {
	err = each(rows, err, func(rows *sql.Rows) error {
		var shard int
		var hash string
		err := rows.Scan(&shard, &hash)
		list = append(list, []any{shard, hash})
		return err
	})
	return list, err
}
