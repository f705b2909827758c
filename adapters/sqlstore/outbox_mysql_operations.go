package sqlstore

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

	"github.com/txonce/txonce/outbox"
)

func (d *mysql) parked(ctx context.Context, q queryer, filter outbox.ParkedFilter) (parked []outbox.ParkedMessage, err error) {
	hash := sha256.Sum256([]byte(filter.Key))
	rows, err := q.QueryContext(ctx, d.box.Parked, filter.After, filter.Topic == "", []byte(filter.Topic),
		filter.Key == "", hex.EncodeToString(hash[:]), hex.EncodeToString([]byte(filter.Cause)), since(filter.Since), until(filter.Until), filter.Limit)
	err = each(rows, err, func(rows *sql.Rows) error {
		m, err := scanParked(rows)
		parked = append(parked, m)
		return err
	})
	return parked, err
}

// repairAtOnce is how many messages one transaction unparks or discards, with all that comes back by them: where only a part
// did, later messages would pass the rest.
const repairAtOnce = 1000

func (d *mysql) repair(ctx context.Context, run outboxRun, seqs []int64, unpark bool) (n int, err error) {
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

func (d *mysql) rescue(context.Context, outboxRun, []int) error { return nil } // repair leaves nothing half-done

// mysqlKey is a key and its shard.
type mysqlKey struct {
	shard int
	hash  string
}

// repairSome keeps away whoever settles or parks in these shards. Unpark leaves those alone that wait behind another one, as
// they go on with it.
func (d *mysql) repairSome(ctx context.Context, tx *sql.Tx, seqs []int64, unpark bool) (n int, err error) {
	if err := d.hasten(ctx, tx); err != nil {
		return 0, err
	}
	list := mysqlSeqs(seqs)
	shards, err := readShards(tx.QueryContext(ctx, d.box.ShardsOf, list))
	if err != nil || len(shards) == 0 {
		return 0, err
	}
	if _, err := readShards(tx.QueryContext(ctx, d.box.LockShards, mysqlShards(shards))); err != nil {
		return 0, err
	}
	keys := make(map[mysqlKey]struct{})
	var gone []int64
	rows, err := tx.QueryContext(ctx, d.box.Listed, list)
	err = each(rows, err, func(rows *sql.Rows) error {
		var k mysqlKey
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
		_, err = tx.ExecContext(ctx, d.box.Unpark, mysqlSeqs(gone))
	}
	if err == nil && len(gone) > 0 {
		_, err = tx.ExecContext(ctx, d.box.Discard, mysqlSeqs(gone))
	}
	for k := range keys {
		if err == nil {
			err = d.release(ctx, tx, k)
		}
	}
	return n, err
}

// release lets go on what no longer has a parked message before it.
func (d *mysql) release(ctx context.Context, tx *sql.Tx, k mysqlKey) error {
	var first sql.NullInt64
	err := tx.QueryRowContext(ctx, d.box.First, k.shard, k.hash).Scan(&first)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return err
	}
	until := cmp.Or(first.Int64, math.MaxInt64)
	for _, query := range [...]string{d.box.Release, d.box.Released} {
		if _, err := tx.ExecContext(ctx, query, k.shard, k.hash, until); err != nil {
			return err
		}
	}
	if first.Valid {
		_, err = tx.ExecContext(ctx, d.box.Behead, first.Int64, k.shard, k.hash)
		return err
	}
	return nil
}

// mysqlSeqs is a list of messages without their shards.
func mysqlSeqs(seqs []int64) string {
	list := make([][2]any, len(seqs))
	for i, seq := range seqs {
		list[i][1] = seq
	}
	return jsonText(list)
}

// statsStatements counts the first messages of each of the shards. Their number never changes while there are messages.
func (d *mysql) statsStatements(ctx context.Context, q queryer) (*outboxStatsStatements, error) {
	var shards int
	var last, packet int64
	if err := q.QueryRowContext(ctx, d.box.Shards).Scan(&shards, &last, &packet); err != nil {
		return nil, err
	}
	if shards == 0 {
		return nil, errNoShards
	}
	each := make([]string, shards, shards+1)
	for i := range each {
		each[i] = strings.NewReplacer("{shard}", strconv.Itoa(i), "{counted}", strconv.Itoa(countedPerShard)).Replace(d.box.CountShard)
	}
	return &outboxStatsStatements{
		Clock: d.box.Clock, Count: strings.Join(append(each, d.box.CountOthers), " UNION ALL "), Relays: d.box.Relays,
	}, nil
}
