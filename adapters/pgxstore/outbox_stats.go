package pgxstore

import (
	"cmp"
	"context"
	"math"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/txonce/txonce/outbox"
	"github.com/txonce/txonce/outbox/driver"
)

const (
	statsExact  = 5_000 // rows of a table that are counted exactly
	statsBlocks = 1_000 // blocks of a larger table that are sampled
)

// The tables that Stats counts, in the order of the statements' results.
const (
	statsPending = iota
	statsDelayed
	statsParked
)

// Stats implements outbox.Operations. The numbers of a table with more than 5,000 rows are estimated from a sample of its
// blocks, and may be wrong by a few per cent. HeldKeys and Relays are always exact.
func (o operations) Stats(ctx context.Context) (outbox.Stats, error) {
	s := o.store
	if err := s.resolve(ctx, s.cfg.Pool); err != nil {
		return outbox.Stats{}, err
	}
	st := outbox.Stats{Topics: map[string]outbox.TopicStats{}}
	var counted [3]int64
	var rows [3][]topicRows
	var blocks []int64
	first := map[string]time.Time{}
	err := s.outboxTx(ctx, "stats", func(b *pgx.Batch) {
		b.Queue(s.outbox.Clock).QueryRow(func(row pgx.Row) error { return row.Scan(&st.Now, &st.HeldKeys) })
		b.Queue(s.outbox.First).Query(func(r pgx.Rows) error {
			var topic string
			var due time.Time
			_, err := pgx.ForEachRow(r, []any{&topic, &due}, func() error { first[topic] = due; return nil })
			return err
		})
		b.Queue(s.outbox.Few, statsExact+1).Query(func(r pgx.Rows) error {
			var of int
			var t topicRows
			_, err := pgx.ForEachRow(r, []any{&of, &t.topic, &t.flag, &t.n, &t.due, &t.failing, &t.error}, func() error {
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
	})
	if err != nil {
		return outbox.Stats{}, err
	}
	for of := range rows {
		if counted[of] > statsExact {
			st.Estimated = true
			if rows[of], err = s.sample(ctx, of, blocks[of], rows[of]); err != nil {
				return outbox.Stats{}, err
			}
			if of == statsPending {
				for topic, due := range first {
					if !slices.ContainsFunc(rows[of], func(t topicRows) bool { return t.topic == topic }) {
						rows[of] = append(rows[of], topicRows{topic: topic, n: 1, due: due})
					}
				}
			}
		}
		for _, t := range rows[of] {
			if due, ok := first[t.topic]; ok && of == statsPending && due.Before(t.due) {
				t.due = due
			}
			driver.Count(&st, t.topic, states[of][t.flag], t.n, t.due, t.failing, t.error)
		}
	}
	return st, nil
}

// states of messages by table and flag. The flag of a delayed message says that it is due, that of a parked one that it waits.
var states = [...]map[bool]driver.State{
	statsPending: {false: driver.StatePending},
	statsDelayed: {false: driver.StateDelayed, true: driver.StatePending},
	statsParked:  {false: driver.StateParked, true: driver.StateWaiting},
}

// topicRows sums up rows of one topic.
type topicRows struct {
	topic   string
	flag    bool
	n       int64
	due     time.Time // the earliest due time
	failing int64
	error   string // of one failing message; empty: none is failing
}

// sample estimates a table from some of its blocks. The sample may contain fewer rows than counted, for example when most
// blocks are empty, so no topic gets less than its value in counted.
func (s *Store) sample(ctx context.Context, of int, blocks int64, counted []topicRows) ([]topicRows, error) {
	percent := min(100, 100*statsBlocks/float64(max(blocks, 1)))
	rows, _ := s.cfg.Pool.Query(ctx, s.outbox.Sample[of], percent)
	sampled, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (t topicRows, err error) {
		err = row.Scan(&t.topic, &t.flag, &t.n, &t.due, &t.failing, &t.error)
		t.n, t.failing = scale(t.n, percent), scale(t.failing, percent)
		return t, err
	})
	if err != nil {
		return nil, s.outboxError("stats", err)
	}
	for _, c := range counted {
		i := slices.IndexFunc(sampled, func(t topicRows) bool { return t.topic == c.topic && t.flag == c.flag })
		if i < 0 {
			sampled = append(sampled, c)
			continue
		}
		t := &sampled[i]
		t.n, t.failing = max(t.n, c.n), max(t.failing, c.failing)
		if c.due.Before(t.due) {
			t.due = c.due
		}
		t.error = cmp.Or(t.error, c.error)
	}
	return sampled, nil
}

func scale(n int64, percent float64) int64 { return int64(math.Round(float64(n) * 100 / percent)) }
