package sqlstore

import (
	"context"
	"database/sql"

	"github.com/txonce/txonce/outbox"
)

func (d *postgres) untidy(ctx context.Context, shards []int) (behind []int, forget bool, err error) {
	if err := d.cfg.DB.QueryRowContext(ctx, d.box.look.Untidy, d.keepSent()).Scan(&forget); err != nil {
		return nil, false, err
	}
	behind, err = readShards(d.cfg.DB.QueryContext(ctx, d.box.relay.Behind, numbers(shards)))
	return behind, forget, err
}

// keepSent is how long sent messages are kept, in seconds.
func (d *postgres) keepSent() float64 { return d.cfg.Outbox.KeepSent.Seconds() }

func (d *postgres) follow(ctx context.Context, tx *sql.Tx, by *outboxHold, tokens map[int]int64) error {
	if err := d.own(ctx, tx, by, tokens); err != nil {
		return err
	}
	shards := make([]int, 0, len(tokens))
	for shard := range tokens {
		shards = append(shards, shard)
	}
	_, err := tx.ExecContext(ctx, d.box.relay.Follow, numbers(shards), followAtOnce, followAtOnce)
	return err
}

func (d *postgres) forget(ctx context.Context, tx *sql.Tx) error {
	for _, do := range [...]struct {
		query string
		args  []any
	}{
		{d.box.relay.Settings, nil},
		{d.box.relay.DropHolds, nil},
		{d.box.relay.DropDead, nil},
		{d.box.relay.Forget, []any{d.keepSent(), forgetAtOnce}},
	} {
		if _, err := tx.ExecContext(ctx, do.query, do.args...); err != nil {
			return err
		}
	}
	return nil
}

func (d *postgres) parked(ctx context.Context, q queryer, filter outbox.ParkedFilter) (parked []outbox.ParkedMessage, err error) {
	rows, err := q.QueryContext(ctx, d.box.relay.Parked, filter.After, filter.Topic, []byte(filter.Key), filter.Limit,
		filter.Cause, nullTime(filter.Since), nullTime(filter.Until))
	err = each(rows, err, func(rows *sql.Rows) error {
		m, err := scanParked(rows)
		parked = append(parked, m)
		return err
	})
	return parked, err
}

func (d *postgres) statsStatements(context.Context, queryer) (*outboxStatsStatements, error) {
	look := &d.box.look
	return &outboxStatsStatements{
		Clock: look.Clock, Count: look.Count, Relays: look.Relays, CountArgs: []any{countedPerShard},
	}, nil
}

// How many are looked for at once, and how many messages of each key come back in one transaction.
const releaseAtOnce = 1000

// repair goes through the shards, and lets go in each what waited behind seqs. What it leaves when it dies half-way is found
// by rescue.
func (d *postgres) repair(ctx context.Context, run outboxRun, seqs []int64, unpark bool) (n int, err error) {
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

// foundParked are parked messages of one shard.
type foundParked struct {
	n    int
	seqs array
	keys map[string]struct{}
}

func (d *postgres) find(ctx context.Context, seqs []int64) (map[int]*foundParked, error) {
	var list array
	for _, seq := range seqs {
		list.add(seq)
	}
	found := make(map[int]*foundParked)
	rows, err := d.cfg.DB.QueryContext(ctx, d.box.relay.Find, list.String())
	return found, each(rows, err, func(rows *sql.Rows) error {
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

// release does what first says, and then, in as many transactions as it takes, brings back what waits behind nobody any
// more. Each leaves a hold from the first message on that has yet to come back, so that a crash in between keeps the order.
func (d *postgres) release(
	ctx context.Context, run outboxRun, shard int, keys map[string]struct{}, first func(context.Context, *sql.Tx) error,
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

func (d *postgres) rescue(ctx context.Context, run outboxRun, shards []int) error {
	stranded := make(map[int]map[string]struct{})
	rows, err := d.cfg.DB.QueryContext(ctx, d.box.relay.Stranded, numbers(shards), releaseAtOnce)
	err = each(rows, err, func(rows *sql.Rows) error {
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
