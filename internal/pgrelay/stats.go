package pgrelay

import (
	"cmp"
	"context"
	"math"
	"slices"
	"time"

	"github.com/txonce/txonce/internal/shares"
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

// Stats implements outbox.Operations. The numbers of a table with more than 5,000 rows are estimated from a sample of
// its blocks, and may be wrong by a few per cent. HeldKeys and Relays are always exact.
func (o Operations) Stats(ctx context.Context) (outbox.Stats, error) {
	if err := o.Ready(ctx); err != nil {
		return outbox.Stats{}, err
	}
	var c counts
	if err := o.Database.Transact(ctx, "stats", c.steps(o)...); err != nil {
		return outbox.Stats{}, err
	}
	for of := range c.rows {
		if c.counted(of) > statsExact {
			c.stats.Estimated = true
			sampled, err := o.sample(ctx, of, c.blocks[of])
			if err != nil {
				return outbox.Stats{}, err
			}
			c.rows[of] = atLeast(sampled, c.rows[of])
			if of == statsPending {
				c.addFirst()
			}
		}
		c.sum(of)
	}
	return c.stats, nil
}

// counts are what the statements of Stats return.
type counts struct {
	stats  outbox.Stats
	first  map[string]time.Time // when the first message of each topic became due
	rows   [3][]topicCount
	blocks []int64
}

// topicCount sums up rows of one topic.
type topicCount struct {
	topic   string
	flag    bool
	n       int64
	due     time.Time // the earliest due time
	failing int64
	error   string // of one failing message; empty: none is failing
}

func (t *topicCount) dest() []any {
	return []any{&t.topic, &t.flag, &t.n, &t.due, &t.failing, &t.error}
}

func (c *counts) steps(o Operations) []Step {
	clock := Step{SQL: o.SQL.Clock, Row: func(row shares.Row) error { return row.Scan(&c.stats.Now, &c.stats.HeldKeys) }}
	clock.Sending = func() {
		*c = counts{stats: outbox.Stats{Topics: map[string]outbox.TopicStats{}}, first: map[string]time.Time{}}
	}
	return []Step{
		clock,
		{SQL: o.SQL.First, Row: func(row shares.Row) error {
			var topic string
			var due time.Time
			err := row.Scan(&topic, &due)
			c.first[topic] = due
			return err
		}},
		{SQL: o.SQL.Few, Args: []any{statsExact + 1}, Row: func(row shares.Row) error {
			var of int
			var t topicCount
			err := row.Scan(append([]any{&of}, t.dest()...)...)
			c.rows[of] = append(c.rows[of], t)
			return err
		}},
		{SQL: o.SQL.Blocks, Row: func(row shares.Row) error {
			var n int64
			err := row.Scan(&n)
			c.blocks = append(c.blocks, n)
			return err
		}},
		{SQL: o.SQL.Living, Row: func(row shares.Row) error {
			var r outbox.RelayStats
			err := row.Scan(&r.Name, &r.Until, &r.Shards)
			c.stats.Relays = append(c.stats.Relays, r)
			return err
		}},
	}
}

func (c *counts) counted(of int) (n int64) {
	for _, t := range c.rows[of] {
		n += t.n
	}
	return n
}

// addFirst adds topics with pending messages that a sample lacks.
func (c *counts) addFirst() {
	for topic, due := range c.first {
		if !slices.ContainsFunc(c.rows[statsPending], func(t topicCount) bool { return t.topic == topic }) {
			c.rows[statsPending] = append(c.rows[statsPending], topicCount{topic: topic, n: 1, due: due})
		}
	}
}

// states of messages by table and flag. The flag of a delayed message says that it is due, that of a parked one that it
// waits.
var states = [...]map[bool]driver.State{
	statsPending: {false: driver.StatePending},
	statsDelayed: {false: driver.StateDelayed, true: driver.StatePending},
	statsParked:  {false: driver.StateParked, true: driver.StateWaiting},
}

func (c *counts) sum(of int) {
	for _, t := range c.rows[of] {
		if due, ok := c.first[t.topic]; ok && of == statsPending && due.Before(t.due) {
			t.due = due
		}
		driver.Count(&c.stats, t.topic, states[of][t.flag], t.n, t.due, t.failing, t.error)
	}
}

// sample estimates a table from some of its blocks.
func (o Operations) sample(ctx context.Context, of int, blocks int64) (sampled []topicCount, err error) {
	percent := min(100, 100*statsBlocks/float64(max(blocks, 1)))
	err = o.Database.Read(ctx, "stats", Step{
		SQL: o.SQL.Sample[of], Args: []any{percent}, Sending: func() { sampled = nil },
		Row: func(row shares.Row) error {
			var t topicCount
			err := row.Scan(t.dest()...)
			t.n, t.failing = scale(t.n, percent), scale(t.failing, percent)
			sampled = append(sampled, t)
			return err
		},
	})
	return sampled, err
}

func scale(n int64, percent float64) int64 { return int64(math.Round(float64(n) * 100 / percent)) }

// atLeast returns sampled with at least the values of counted for each topic: a sample may contain fewer rows, for
// example when most blocks are empty.
func atLeast(sampled, counted []topicCount) []topicCount {
	for _, c := range counted {
		i := slices.IndexFunc(sampled, func(t topicCount) bool { return t.topic == c.topic && t.flag == c.flag })
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
	return sampled
}
