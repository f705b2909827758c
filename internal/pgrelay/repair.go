package pgrelay

import (
	"context"
	"slices"

	"github.com/txonce/txonce/internal/dialect"
	"github.com/txonce/txonce/internal/shares"
)

const (
	repairAtOnce  = 1000 // how many messages are looked for with one statement
	releaseAtOnce = 1000 // how many messages of each key one transaction returns to the queue
	rescueAtOnce  = 5000 // how many keys one rescue releases at most
)

// parkedGroup holds parked messages of one shard.
type parkedGroup struct {
	shard int16
	seqs  []int64
	keys  [][]byte
}

// repair sends statement, which is Unpark or Discard, for the parked messages among seqs, shard by shard, and then
// returns the messages that waited behind them. n is how many were repaired, also after an error.
func repair(ctx context.Context, db Database, sql *dialect.PostgresOutbox, statement string,
	seqs []int64,
) (n int, err error) {
	for some := range slices.Chunk(seqs, repairAtOnce) {
		groups, err := findParked(ctx, db, sql, some)
		if err != nil {
			return n, err
		}
		for _, g := range groups {
			if err := release(ctx, db, sql, g.shard, g.keys,
				&Step{SQL: statement, Args: []any{g.shard, g.seqs}}); err != nil {
				return n, err
			}
			n += len(g.seqs)
		}
	}
	return n, nil
}

func findParked(ctx context.Context, db Database, sql *dialect.PostgresOutbox,
	seqs []int64,
) (groups []*parkedGroup, err error) {
	err = db.Read(ctx, "find parked messages", Step{SQL: sql.Find, Args: []any{seqs}, Row: func(row shares.Row) error {
		var seq int64
		var shard int16
		var key []byte
		if err := row.Scan(&seq, &shard, &key); err != nil {
			return err
		}
		i := slices.IndexFunc(groups, func(g *parkedGroup) bool { return g.shard == shard })
		if i < 0 {
			i, groups = len(groups), append(groups, &parkedGroup{shard: shard})
		}
		g := groups[i]
		if n := len(g.seqs); n > 0 && g.seqs[n-1] == seq {
			return nil // the caller listed it twice
		}
		g.seqs = append(g.seqs, seq)
		if key != nil && !slices.ContainsFunc(g.keys, func(k []byte) bool { return string(k) == string(key) }) {
			g.keys = append(g.keys, key)
		}
		return nil
	}})
	return groups, err
}

// release sends first, and then returns the messages that no longer wait behind a parked one. It uses as many
// transactions as it needs. Each transaction leaves a hold that begins at the first message that has not returned yet,
// so that the order survives a crash.
func release(ctx context.Context, db Database, sql *dialect.PostgresOutbox, shard int16, keys [][]byte,
	first *Step,
) error {
	for {
		var moved int64
		steps := []Step{{SQL: sql.LockShard, Args: []any{shard}}}
		if first != nil {
			steps = append(steps, *first)
		}
		if len(keys) > 0 {
			steps = append(
				steps, Step{
					SQL: sql.Release, Args: []any{shard, keys, releaseAtOnce},
					Changed: func(rows int64) { moved = rows },
				},
				Step{SQL: sql.Rehold, Args: []any{shard, keys}},
			)
		}
		if err := db.Transact(ctx, "release", steps...); err != nil || moved < releaseAtOnce {
			return err
		}
		first = nil
	}
}

// rescue finishes each repair that crashed midway: it returns the messages in shards that no longer wait behind a
// parked one.
func rescue(ctx context.Context, db Database, sql *dialect.PostgresOutbox, shards []int) error {
	type keyOfShard struct {
		shard int16
		key   []byte
	}
	var stranded []keyOfShard
	err := db.Read(ctx, "maintain", Step{SQL: sql.Stranded, Args: []any{shards, rescueAtOnce}, Row: func(row shares.Row) error {
		var k keyOfShard
		err := row.Scan(&k.shard, &k.key)
		stranded = append(stranded, k)
		return err
	}})
	if err != nil {
		return err
	}
	for _, k := range stranded {
		if err := release(ctx, db, sql, k.shard, [][]byte{k.key}, nil); err != nil {
			return err
		}
	}
	return nil
}
