package sqlstore

import (
	"context"
	"database/sql"
	"strings"
	"time"

	"github.com/txonce/txonce/adapters/sqlstore/internal/engine"
	"github.com/txonce/txonce/outbox"
	"github.com/txonce/txonce/outbox/driver"
)

func readStats(ctx context.Context, q engine.Queryer, from *engine.StatsStatements) (outbox.Stats, error) {
	st := outboxStats{Stats: outbox.Stats{Topics: make(map[string]outbox.TopicStats)}, shards: make(map[int][]counted)}
	var clock engine.Instant
	if err := q.QueryRowContext(ctx, from.Clock).Scan(&clock, &st.HeldKeys); err != nil {
		return st.Stats, err
	}
	st.Now = clock.Time
	if err := engine.Query(ctx, q, from.Count, from.CountArgs...).Each(st.scanCount); err != nil {
		return st.Stats, err
	}
	if err := engine.Query(ctx, q, from.Relays).Each(st.scanRelay); err != nil {
		return st.Stats, err
	}
	st.estimate()
	return st.Stats, nil
}

// outboxStats builds Stats from the rows of the queries.
type outboxStats struct {
	outbox.Stats
	shards map[int][]counted
}

// counted is a count of messages of one topic among the first messages of a shard.
type counted struct {
	topic      string
	n, failing int64
	due        time.Time
	error      string
	// sequence numbers; next is the first message of the shard that was not counted; 0: all were counted
	first, next, last int64
}

// scanCount reads a count of messages of one topic: pending ones of one shard, all delayed ones, or all parked ones.
// flag means that delayed messages are due, or that parked messages wait behind another one.
func (st *outboxStats) scanCount(rows engine.Row) error {
	var kind, shard int
	var flag bool
	var c counted
	var due engine.Instant
	var text sql.NullString
	var next sql.NullInt64
	if err := rows.Scan(&kind, &shard, &c.topic, &flag, &c.n, &due, &c.failing, &text, &c.first, &next,
		&c.last); err != nil {
		return err
	}
	c.due, c.next = due.Time, next.Int64
	c.error = strings.ToValidUTF8(text.String, "") // the text may be cut inside a character
	if kind == 0 {
		st.shards[shard] = append(st.shards[shard], c)
		return nil
	}
	state := [...][2]driver.State{
		1: {driver.StateDelayed, driver.StatePending},
		2: {driver.StateParked, driver.StateWaiting},
	}[kind]
	if flag {
		driver.Count(&st.Stats, c.topic, state[1], c.n, c.due, 0, "")
	} else {
		driver.Count(&st.Stats, c.topic, state[0], c.n, c.due, 0, "")
	}
	return nil
}

// estimate adds up the shards. It assumes that the numbers of uncounted messages have the same gaps as those of counted
// ones.
func (st *outboxStats) estimate() {
	for _, topics := range st.shards {
		first, more := topics[0].first, 1.
		for _, c := range topics {
			first = min(first, c.first)
		}
		if c := topics[0]; c.next > 0 {
			st.Estimated = true
			more = float64(c.last-first+1) / float64(c.next-first)
		}
		for _, c := range topics {
			driver.Count(&st.Stats, c.topic, driver.StatePending, int64(float64(c.n)*more), c.due,
				int64(float64(c.failing)*more), c.error)
		}
	}
}

func (st *outboxStats) scanRelay(rows engine.Row) error {
	var r outbox.RelayStats
	var until engine.Instant
	if err := rows.Scan(&r.Name, &until, &r.Shards); err != nil {
		return err
	}
	r.Until = until.Time
	st.Relays = append(st.Relays, r)
	return nil
}
