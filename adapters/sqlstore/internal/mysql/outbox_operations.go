package mysql

import (
	"cmp"
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"errors"
	"math"
	"strconv"
	"strings"

	"github.com/txonce/txonce/adapters/sqlstore/internal/engine"
	"github.com/txonce/txonce/outbox"
)

func (d *DB) Parked(ctx context.Context, q engine.Queryer, filter outbox.ParkedFilter) ([]outbox.ParkedMessage, error) {
	hash := sha256.Sum256([]byte(filter.OrderingKey))
	return engine.ReadParked(engine.Query(ctx, q, d.box.Parked, filter.After, filter.Topic == "", []byte(filter.Topic),
		filter.OrderingKey == "", hex.EncodeToString(hash[:]), hex.EncodeToString([]byte(filter.Error)),
		engine.Since(filter.Since), engine.Until(filter.Until), filter.Limit))
}

// repairAtOnce is how many messages one transaction unparks or discards. The same transaction releases all messages
// behind them: if it released only a part, later messages would overtake the rest.
const repairAtOnce = 1000

func (d *DB) Repair(ctx context.Context, run engine.Run, seqs []int64, unpark bool) (n int, err error) {
	for len(seqs) > 0 {
		some := seqs[:min(len(seqs), repairAtOnce)]
		seqs = seqs[len(some):]
		var repaired int
		err := run(ctx, func(ctx context.Context, tx *sql.Tx) (err error) {
			repaired, err = d.repairSome(ctx, tx, some, unpark)
			return err
		})
		if err != nil {
			return n, err
		}
		n += repaired
	}
	return n, nil
}

// parkedKey is a key and its shard.
type parkedKey struct {
	shard int
	hash  string
}

// repairSome locks the shards, so that no relay settles or parks there meanwhile. Unpark skips messages that wait
// behind another parked one: releasing that one also releases them.
func (d *DB) repairSome(ctx context.Context, tx *sql.Tx, seqs []int64, unpark bool) (n int, err error) {
	if err := d.applySettings(ctx, tx); err != nil {
		return 0, err
	}
	list := seqList(seqs)
	shards, err := engine.Column[int](engine.Query(ctx, tx, d.box.ShardsOf, list))
	if err != nil || len(shards) == 0 {
		return 0, err
	}
	if _, err := engine.Column[int](engine.Query(ctx, tx, d.box.LockShards, shardList(shards))); err != nil {
		return 0, err
	}
	keys := make(map[parkedKey]struct{})
	var gone []int64
	err = engine.Query(ctx, tx, d.box.Listed, list).Each(func(rows engine.Row) error {
		var k parkedKey
		var seq int64
		var hash sql.NullString
		var waits bool
		if err := rows.Scan(&k.shard, &seq, &hash, &waits); err != nil {
			return err
		}
		n++
		if !unpark || !waits {
			gone = append(gone, seq)
		}
		if k.hash = hash.String; hash.Valid {
			keys[k] = struct{}{}
		}
		return nil
	})
	if err != nil {
		return 0, err
	}
	if unpark && len(gone) > 0 {
		_, err = tx.ExecContext(ctx, d.box.Unpark, seqList(gone))
	}
	if err == nil && len(gone) > 0 {
		_, err = tx.ExecContext(ctx, d.box.Discard, seqList(gone))
	}
	for k := range keys {
		if err == nil {
			err = d.release(ctx, tx, k)
		}
	}
	return n, err
}

// release returns messages of key k to the outbox that have no parked message before them any more.
func (d *DB) release(ctx context.Context, tx *sql.Tx, k parkedKey) error {
	var first sql.NullInt64
	err := tx.QueryRowContext(ctx, d.box.First, k.shard, k.hash).Scan(&first)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return err
	}
	until := cmp.Or(first.Int64, math.MaxInt64)
	if err := engine.Exec(ctx, tx, []string{d.box.Release, d.box.Released}, k.shard, k.hash, until); err != nil {
		return err
	}
	if first.Valid {
		_, err = tx.ExecContext(ctx, d.box.Behead, first.Int64, k.shard, k.hash)
		return err
	}
	return nil
}

// seqList returns sequence numbers without their shards as JSON.
func seqList(seqs []int64) string {
	list := make([][2]any, len(seqs))
	for i, seq := range seqs {
		list[i][1] = seq
	}
	return engine.JSON(list)
}

// StatsStatements counts the first messages of each shard. The number of shards never changes while there are messages.
func (d *DB) StatsStatements(ctx context.Context, q engine.Queryer) (*engine.StatsStatements, error) {
	var shards int
	var last, packet int64
	if err := q.QueryRowContext(ctx, d.box.Shards).Scan(&shards, &last, &packet); err != nil {
		return nil, err
	}
	if shards == 0 {
		return nil, engine.ErrNoShards
	}
	each := make([]string, shards, shards+1)
	for i := range each {
		each[i] = strings.NewReplacer("{shard}", strconv.Itoa(i), "{counted}",
			strconv.Itoa(engine.CountedPerShard)).Replace(d.box.CountShard)
	}
	return &engine.StatsStatements{
		Clock: d.box.Clock, Count: strings.Join(append(each, d.box.CountOthers), " UNION ALL "), Relays: d.box.Relays,
	}, nil
}
