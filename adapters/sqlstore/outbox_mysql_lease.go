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

// mysqlFew is up to how many messages are read at once. Where there are more, each shard gives a fair part.
const mysqlFew = 500

func (d *mysql) lease(
	ctx context.Context, q queryer, _ *outboxHold, shards []int, tokens map[int]int64, want outbox.Want,
) (msgs []outbox.Leased, err error) {
	chosen, all, err := d.leaseFew(ctx, q, shards, want)
	if err == nil && !all {
		chosen, err = leaseFairly(shards, want, func(shards []int, after map[int]int64, part int) (map[int][]*mysqlLeased, error) {
			return d.leaseRound(ctx, q, shards, after, part)
		})
	}
	if err == nil {
		err = d.readHeavy(ctx, q, chosen)
	}
	if err != nil {
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

// leaseFew reads all that is due of shards, unless that is too much. Asking each of them, as leaseRound does, costs the server several
// times as much.
func (d *mysql) leaseFew(ctx context.Context, q queryer, shards []int, want outbox.Want) (chosen []*mysqlLeased, all bool, err error) {
	most := min(want.Limit, mysqlFew)
	read, err := d.readLight(ctx, q, d.box.LeaseFew, mysqlShards(shards), most)
	if err != nil {
		return nil, false, err
	}
	room := outboxRoom{limit: want.Limit, bytes: want.Bytes}
	for _, msgs := range read {
		for _, m := range msgs {
			if room.full || !room.take(m.size) {
				return nil, false, nil
			}
			chosen = append(chosen, m)
		}
	}
	return chosen, len(chosen) < most, nil
}

// mysqlLeased is a message that was looked at.
type mysqlLeased struct {
	outbox.Leased
	size     int
	light    bool // it is here as a whole
	vanished bool
}

func (m *mysqlLeased) place() (seq int64, size int) { return m.Seq, m.size }

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
	return d.readLight(ctx, q, strings.Repeat(d.box.LeaseShard+" UNION ALL ", len(shards)-1)+d.box.LeaseShard, args...)
}

// readLight reads messages, whole if they are light, by shard and in their order.
func (d *mysql) readLight(ctx context.Context, q queryer, query string, args ...any) (map[int][]*mysqlLeased, error) {
	read := make(map[int][]*mysqlLeased)
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

// readHeavy reads what readLight has left out of msgs.
func (d *mysql) readHeavy(ctx context.Context, q queryer, msgs []*mysqlLeased) error {
	var list [][2]int64
	missing := make(map[int64]*mysqlLeased)
	for _, m := range msgs {
		if !m.light {
			list = append(list, [2]int64{int64(m.Shard), m.Seq})
			m.vanished = true
			missing[m.Seq] = m
		}
	}
	if len(list) == 0 {
		return nil
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
