package sqlite

import (
	"cmp"
	"context"
	"database/sql"
	"slices"

	"github.com/txonce/txonce/adapters/sqlstore/internal/engine"
	"github.com/txonce/txonce/outbox/driver"
)

// Lease first chooses messages by size, and then reads their contents.
func (d *DB) Lease(
	ctx context.Context, q engine.Queryer, _ *engine.Hold, shards []int, tokens map[int]int64, want driver.Want,
) (msgs []driver.Leased, err error) {
	chosen, err := engine.LeaseFairly(shards, want, func(shards []int, part int) (map[int][]candidate, error) {
		return d.leaseRound(ctx, q, shards, part)
	})
	if err != nil || len(chosen) == 0 {
		return nil, err
	}
	list := make([][2]int64, len(chosen))
	for i, m := range chosen {
		list[i] = [2]int64{m.shard, m.seq}
	}
	err = engine.Query(ctx, q, d.box.Read, engine.JSON(list)).Each(func(rows engine.Row) error {
		var m driver.Leased
		var at engine.Instant
		var headers sql.NullString
		var key []byte
		if err := rows.Scan(&m.Shard, &m.Seq, &m.ID, &m.Topic, &key, &m.Payload, &headers, &at,
			&m.Attempts); err != nil {
			return err
		}
		m.OrderingKey, m.Enqueued, m.Token = string(key), at.Time, tokens[m.Shard]
		m.Headers, m.Unreadable = engine.DecodeHeaders(headers.String)
		msgs = append(msgs, m)
		return nil
	})
	slices.SortFunc(msgs, func(a, b driver.Leased) int { return cmp.Compare(a.Seq, b.Seq) })
	return msgs, err
}

// candidate is a due message that may be leased.
type candidate struct {
	shard, seq int64
	size       int
}

func (m candidate) Place() (seq int64, size int) { return m.seq, m.size }

// leaseRound finds the first part due messages of each shard, ordered by number.
func (d *DB) leaseRound(ctx context.Context, q engine.Queryer, shards []int, part int) (map[int][]candidate, error) {
	found := make(map[int][]candidate)
	err := engine.Query(ctx, q, d.box.Lease, engine.JSON(shards), part).Each(func(rows engine.Row) error {
		var m candidate
		err := rows.Scan(&m.shard, &m.seq, &m.size)
		found[int(m.shard)] = append(found[int(m.shard)], m)
		return err
	})
	for _, due := range found {
		slices.SortFunc(due, func(a, b candidate) int { return cmp.Compare(a.seq, b.seq) })
	}
	return found, err
}
