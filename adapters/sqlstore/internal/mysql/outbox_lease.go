package mysql

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"slices"
	"strings"

	"github.com/txonce/txonce/adapters/sqlstore/internal/engine"
	"github.com/txonce/txonce/internal/dialect"
	"github.com/txonce/txonce/outbox/driver"
)

func (d *DB) Reading(ctx context.Context, f func(context.Context, engine.Queryer) error) error {
	return f(ctx, d.cfg.DB)
}

func (d *DB) Leasable(ctx context.Context, q engine.Queryer, by *engine.Hold,
	_ map[int]int64,
) (engine.Leasable, error) {
	return engine.ReadLeasable(engine.Query(ctx, q, d.box.Look, by.Hex()))
}

func (d *DB) MoveDue(ctx context.Context, tx *sql.Tx, limit int) error {
	if err := d.applySettings(ctx, tx); err != nil {
		return err
	}
	turn, slots := dialect.MoveTurn, 0
	err := tx.QueryRowContext(ctx, d.box.TryTurn, turn).Scan(&turn)
	if errors.Is(err, sql.ErrNoRows) { // another session moves them, or the row is missing
		if err = tx.QueryRowContext(ctx, d.box.Slots, turn).Scan(&slots); err == nil && slots == 0 {
			err = errNoLocks
		}
		return err
	} else if err != nil {
		return err
	}
	due, err := engine.ReadDue(engine.Query(ctx, tx, d.box.Due, limit))
	if err != nil || len(due) == 0 {
		return err
	}
	return engine.Exec(ctx, tx, []string{d.box.Come, d.box.Came}, engine.JSON(due))
}

// fewMessages is how many messages a single query reads. If more are due, each shard gets a fair part.
const fewMessages = 500

func (d *DB) Lease(
	ctx context.Context, q engine.Queryer, _ *engine.Hold, shards []int, tokens map[int]int64, want driver.Want,
) (msgs []driver.Leased, err error) {
	chosen, all, err := d.leaseFew(ctx, q, shards, want)
	if err == nil && !all {
		chosen, err = engine.LeaseFairly(shards, want, func(shards []int, part int) (map[int][]*candidate, error) {
			return d.leaseRound(ctx, q, shards, part)
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
	slices.SortFunc(msgs, func(a, b driver.Leased) int { return cmp.Compare(a.Seq, b.Seq) })
	return msgs, nil
}

// leaseFew reads all due messages of shards, and reports all as false if there are too many. leaseRound, which queries
// each shard, costs the server several times as much.
func (d *DB) leaseFew(ctx context.Context, q engine.Queryer, shards []int,
	want driver.Want,
) (chosen []*candidate, all bool, err error) {
	most := min(want.Limit, fewMessages)
	read, err := d.readLight(ctx, q, d.box.LeaseFew, shardList(shards), most)
	if err != nil {
		return nil, false, err
	}
	room := engine.NewRoom(want)
	for _, msgs := range read {
		for _, m := range msgs {
			if room.Full || !room.Take(m.size) {
				return nil, false, nil
			}
			chosen = append(chosen, m)
		}
	}
	return chosen, len(chosen) < most, nil
}

// candidate is a due message that may be leased.
type candidate struct {
	driver.Leased
	size     int
	light    bool // the message was read with its payload
	vanished bool
}

func (m *candidate) Place() (seq int64, size int) { return m.Seq, m.size }

// put sets the parts that are read with a light message.
func (m *candidate) put(key, payload, headers []byte) {
	m.OrderingKey, m.Payload = string(key), payload
	m.Headers, m.Unreadable = engine.DecodeHeaders(string(headers))
}

// leaseRound reads the first part due messages of each shard, ordered by number.
func (d *DB) leaseRound(ctx context.Context, q engine.Queryer, shards []int, part int) (map[int][]*candidate, error) {
	args := make([]any, 0, 2*len(shards))
	for _, shard := range shards {
		args = append(args, shard, part)
	}
	return d.readLight(ctx, q, strings.Repeat(d.box.LeaseShard+" UNION ALL ", len(shards)-1)+d.box.LeaseShard, args...)
}

// readLight reads messages by shard and number. It reads the payloads of light messages only.
func (d *DB) readLight(ctx context.Context, q engine.Queryer, query string, args ...any) (map[int][]*candidate, error) {
	read := make(map[int][]*candidate)
	err := engine.Query(ctx, q, query, args...).Each(func(rows engine.Row) error {
		var m candidate
		var at engine.Instant
		var key, payload, headers []byte
		if err := rows.Scan(&m.Shard, &m.Seq, &m.ID, &m.Topic, &m.size, &at, &m.Attempts, &m.light, &key, &payload,
			&headers); err != nil {
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
		slices.SortFunc(msgs, func(a, b *candidate) int { return cmp.Compare(a.Seq, b.Seq) })
	}
	return read, err
}

// readHeavy reads the payloads that readLight left out.
func (d *DB) readHeavy(ctx context.Context, q engine.Queryer, msgs []*candidate) error {
	var list [][2]int64
	missing := make(map[int64]*candidate)
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
	return engine.Query(ctx, q, d.box.Heavy, engine.JSON(list)).Each(func(rows engine.Row) error {
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
