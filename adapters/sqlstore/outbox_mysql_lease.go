package sqlstore

import (
	"cmp"
	"context"
	"database/sql"
	"slices"
	"strings"

	"github.com/txonce/txonce/outbox"
)

func (d *mysql) reading(ctx context.Context, f func(context.Context, queryer) error) error {
	return f(ctx, d.cfg.DB)
}

func (d *mysql) look(ctx context.Context, q queryer, by *outboxHold) (outboxSight, error) {
	return readSight(q.QueryContext(ctx, d.box.Look, by.hex()))
}

func (d *mysql) come(ctx context.Context, tx *sql.Tx, limit int) error {
	if err := d.hasten(ctx, tx); err != nil {
		return err
	}
	var due [][2]int64
	rows, err := tx.QueryContext(ctx, d.box.Due, limit)
	err = each(rows, err, func(rows *sql.Rows) error {
		var at, seq int64
		err := rows.Scan(&at, &seq)
		due = append(due, [2]int64{at, seq})
		return err
	})
	if err != nil || len(due) == 0 {
		return err
	}
	for _, query := range [...]string{d.box.Come, d.box.Came} {
		if _, err := tx.ExecContext(ctx, query, jsonText(due)); err != nil {
			return err
		}
	}
	return nil
}

// lease reads a fair part of each shard first, and then more of those that have more.
func (d *mysql) lease(
	ctx context.Context, q queryer, _ *outboxHold, shards []int, tokens map[int]int64, want outbox.Want,
) (msgs []outbox.Leased, err error) {
	room := outboxRoom{limit: want.Limit, bytes: want.Bytes}
	after := make(map[int]int64)
	var heavy []*mysqlLeased
	var chosen []*mysqlLeased
	for len(shards) > 0 && !room.full {
		part := max(room.limit/len(shards), 1)
		read, err := d.leaseRound(ctx, q, shards, after, part)
		if err != nil {
			return nil, err
		}
		var more []int
		for _, shard := range shards {
			for _, m := range read[shard] {
				if room.full || !room.take(m.size) {
					break
				}
				chosen = append(chosen, m)
				if !m.light {
					heavy = append(heavy, m)
				}
			}
			if n := len(read[shard]); n >= part {
				more = append(more, shard)
				after[shard] = read[shard][n-1].Seq
			}
		}
		shards = more
	}
	if err := d.readHeavy(ctx, q, heavy); err != nil {
		return nil, err
	}
	for _, m := range chosen {
		if !m.vanished {
			m.Token = tokens[m.Shard]
			msgs = append(msgs, m.Leased)
		}
	}
	slices.SortFunc(msgs, func(a, b outbox.Leased) int { return cmp.Compare(a.Seq, b.Seq) })
	return msgs, nil
}

// mysqlLeased is a message that was looked at.
type mysqlLeased struct {
	outbox.Leased
	size     int
	light    bool // it is here as a whole
	vanished bool
}

// put sets what light messages come with.
func (m *mysqlLeased) put(key, payload, headers []byte) {
	m.Key, m.Payload = string(key), payload
	m.Headers, m.Unreadable = decodeHeaders(string(headers))
}

// leaseRound reads the first messages after those numbers that are due, so many of each shard, in their order.
func (d *mysql) leaseRound(ctx context.Context, q queryer, shards []int, after map[int]int64, part int) (map[int][]*mysqlLeased, error) {
	args := make([]any, 0, 3*len(shards))
	for _, shard := range shards {
		args = append(args, shard, after[shard], part)
	}
	read := make(map[int][]*mysqlLeased, len(shards))
	query := strings.Repeat(d.box.LeaseShard+" UNION ALL ", len(shards)-1) + d.box.LeaseShard
	rows, err := q.QueryContext(ctx, query, args...)
	err = each(rows, err, func(rows *sql.Rows) error {
		var m mysqlLeased
		var at instant
		var key, payload, headers []byte
		if err := rows.Scan(&m.Shard, &m.Seq, &m.ID, &m.Topic, &m.size, &at, &m.Attempts, &m.light, &key, &payload, &headers); err != nil {
			return err
		}
		m.Enqueued = at.Time
		if m.light {
			m.put(key, payload, headers)
		}
		read[m.Shard] = append(read[m.Shard], &m)
		return nil
	})
	for _, msgs := range read {
		slices.SortFunc(msgs, func(a, b *mysqlLeased) int { return cmp.Compare(a.Seq, b.Seq) })
	}
	return read, err
}

// readHeavy reads what leaseRound has left out.
func (d *mysql) readHeavy(ctx context.Context, q queryer, heavy []*mysqlLeased) error {
	if len(heavy) == 0 {
		return nil
	}
	list := make([][2]int64, len(heavy))
	missing := make(map[int64]*mysqlLeased, len(heavy))
	for i, m := range heavy {
		list[i] = [2]int64{int64(m.Shard), m.Seq}
		m.vanished = true
		missing[m.Seq] = m
	}
	rows, err := q.QueryContext(ctx, d.box.Heavy, jsonText(list))
	return each(rows, err, func(rows *sql.Rows) error {
		var seq int64
		var key, payload, headers []byte
		if err := rows.Scan(&seq, &key, &payload, &headers); err != nil {
			return err
		}
		m := missing[seq]
		m.vanished = false
		m.put(key, payload, headers)
		return nil
	})
}
