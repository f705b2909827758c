package pgxstore

import (
	"context"
	"math"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/txonce/txonce/outbox"
)

var _ outbox.Operations = (*Store)(nil)

const (
	statsExact  = 5_000 // rows of a table that are counted one by one
	statsBlocks = 1_000 // of a larger table that are counted, and stand for the others
)

// The tables that Stats counts, in the order of the statements.
const (
	statsPending = iota
	statsDelayed
	statsParked
)

// Stats implements outbox.Operations. A table of more than 5,000 rows is estimated from a sample of its blocks, which are
// some per cent off; Oldest, HeldKeys and Relays are always exact.
func (s *Store) Stats(ctx context.Context) (outbox.Stats, error) {
	st := outbox.Stats{Topics: map[string]outbox.TopicStats{}}
	var counted [3]int64
	var rows [3][]topicRows
	var blocks []int64
	err := s.outboxTx(ctx, "stats", func(b *pgx.Batch) {
		b.Queue(s.outbox.Look).QueryRow(func(row pgx.Row) error {
			var oldest *time.Time
			err := row.Scan(&st.Now, &oldest, &st.HeldKeys)
			if oldest != nil {
				st.Oldest = *oldest
			}
			return err
		})
		b.Queue(s.outbox.Few, statsExact+1).Query(func(r pgx.Rows) error {
			var of int
			var t topicRows
			_, err := pgx.ForEachRow(r, []any{&of, &t.topic, &t.waiting, &t.n}, func() error {
				rows[of] = append(rows[of], t)
				counted[of] += t.n
				return nil
			})
			return err
		})
		b.Queue(s.outbox.Blocks).Query(func(r pgx.Rows) (err error) {
			blocks, err = pgx.CollectRows(r, pgx.RowTo[int64])
			return err
		})
		b.Queue(s.outbox.Living).Query(func(r pgx.Rows) (err error) {
			st.Relays, err = pgx.CollectRows(r, func(row pgx.CollectableRow) (r outbox.RelayStats, err error) {
				return r, row.Scan(&r.Name, &r.Until, &r.Shards)
			})
			return err
		})
		if s.cfg.Outbox.Mode == OutboxWAL {
			b.Queue(s.wal.Lag).QueryRow(func(row pgx.Row) error { return row.Scan(&st.SlotLag) })
		}
	})
	if err != nil {
		return outbox.Stats{}, err
	}
	for of := range rows {
		if counted[of] > statsExact {
			st.Estimated = true
			if rows[of], err = s.sample(ctx, of, blocks[of]); err != nil {
				return outbox.Stats{}, err
			}
		}
		for _, t := range rows[of] {
			count(&st, of, t)
		}
	}
	return st, nil
}

// topicRows are rows of one topic.
type topicRows struct {
	topic   string
	waiting bool
	n       int64
}

// sample counts some blocks of a table.
func (s *Store) sample(ctx context.Context, of int, blocks int64) ([]topicRows, error) {
	percent := min(100, 100*statsBlocks/float64(max(blocks, 1)))
	rows, _ := s.cfg.Pool.Query(ctx, s.outbox.Sample[of], percent)
	sampled, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (t topicRows, err error) {
		err = row.Scan(&t.topic, &t.waiting, &t.n)
		t.n = int64(math.Round(float64(t.n) * 100 / percent))
		return t, err
	})
	return sampled, s.outboxError("stats", err)
}

func count(st *outbox.Stats, of int, t topicRows) {
	topic := st.Topics[t.topic]
	switch {
	case of == statsPending:
		st.Pending += t.n
		topic.Pending += t.n
	case of == statsDelayed:
		st.Delayed += t.n
		topic.Delayed += t.n
	case t.waiting:
		st.Waiting += t.n
		topic.Waiting += t.n
	default:
		st.Parked += t.n
		topic.Parked += t.n
	}
	st.Topics[t.topic] = topic
}
