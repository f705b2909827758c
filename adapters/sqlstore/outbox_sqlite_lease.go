package sqlstore

import (
	"cmp"
	"context"
	"database/sql"
	"slices"

	"github.com/txonce/txonce/outbox"
)

// lease chooses by size what fits, and reads that.
func (d *sqlite) lease(
	ctx context.Context, q queryer, _ *outboxHold, shards []int, tokens map[int]int64, want outbox.Want,
) (msgs []outbox.Leased, err error) {
	chosen, err := leaseFairly(shards, want, func(shards []int, after map[int]int64, part int) (map[int][]sqliteDue, error) {
		return d.leaseRound(ctx, q, shards, after, part)
	})
	if err != nil || len(chosen) == 0 {
		return nil, err
	}
	list := make([][2]int64, len(chosen))
	for i, m := range chosen {
		list[i] = [2]int64{m.shard, m.seq}
	}
	rows, err := q.QueryContext(ctx, d.box.Read, jsonText(list))
	err = each(rows, err, func(rows *sql.Rows) error {
		var m outbox.Leased
		var at instant
		var headers sql.NullString
		var key []byte
		if err := rows.Scan(&m.Shard, &m.Seq, &m.ID, &m.Topic, &key, &m.Payload, &headers, &at, &m.Attempts); err != nil {
			return err
		}
		m.Key, m.Enqueued, m.Token = string(key), at.Time, tokens[m.Shard]
		m.Headers, m.Unreadable = decodeHeaders(headers.String)
		msgs = append(msgs, m)
		return nil
	})
	slices.SortFunc(msgs, func(a, b outbox.Leased) int { return cmp.Compare(a.Seq, b.Seq) })
	return msgs, err
}

// sqliteDue is a message that is due.
type sqliteDue struct {
	shard, seq int64
	size       int
}

func (m sqliteDue) place() (seq int64, size int) { return m.seq, m.size }

// leaseRound finds the first messages after those numbers that are due, so many of each shard, in their order.
func (d *sqlite) leaseRound(ctx context.Context, q queryer, shards []int, after map[int]int64, part int) (map[int][]sqliteDue, error) {
	list := make([][2]int64, len(shards))
	for i, shard := range shards {
		list[i] = [2]int64{int64(shard), after[shard]}
	}
	found := make(map[int][]sqliteDue)
	rows, err := q.QueryContext(ctx, d.box.Lease, jsonText(list), part)
	err = each(rows, err, func(rows *sql.Rows) error {
		var m sqliteDue
		err := rows.Scan(&m.shard, &m.seq, &m.size)
		found[int(m.shard)] = append(found[int(m.shard)], m)
		return err
	})
	for _, due := range found {
		slices.SortFunc(due, func(a, b sqliteDue) int { return cmp.Compare(a.seq, b.seq) })
	}
	return found, err
}
