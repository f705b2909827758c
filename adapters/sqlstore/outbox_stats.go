package sqlstore

import (
	"context"
	"database/sql"

	"github.com/txonce/txonce/outbox"
)

// countedPerShard is how many pending messages of a shard Stats counts. Those behind them are estimated.
const countedPerShard = 250

// outboxStatsStatements are one for each kind of row.
type outboxStatsStatements struct {
	Clock, Pending, Delayed, Parked, Relays string
	PendingArgs                             []any
}

func readStats(ctx context.Context, q queryer, from *outboxStatsStatements) (outbox.Stats, error) {
	st := outboxStats{Stats: outbox.Stats{Topics: make(map[string]outbox.TopicStats)}}
	var clock instant
	if err := q.QueryRowContext(ctx, from.Clock).Scan(&clock, &st.HeldKeys); err != nil {
		return st.Stats, err
	}
	st.Now = clock.Time
	for _, read := range []struct {
		query string
		args  []any
		scan  func(*sql.Rows) error
	}{
		{from.Pending, from.PendingArgs, st.scanPending},
		{from.Delayed, nil, st.scanDelayed},
		{from.Parked, nil, st.scanParked},
		{from.Relays, nil, st.scanRelay},
	} {
		rows, err := q.QueryContext(ctx, read.query, read.args...)
		if err := each(rows, err, read.scan); err != nil {
			return st.Stats, err
		}
	}
	st.estimate()
	return st.Stats, nil
}

// outboxStats are made from what statements return row by row.
type outboxStats struct {
	outbox.Stats
	counted map[int]*countedShard
}

// countedShard is the first part of a shard.
type countedShard struct {
	topics            map[string]int64
	n                 int64
	first, next, last int64 // seqs; next is that of the first message that was not counted, 0: there is none
}

func (st *outboxStats) scanPending(rows *sql.Rows) error {
	var shard int
	var topic string
	var n, first, last int64
	var next sql.NullInt64
	var oldest instant
	if err := rows.Scan(&shard, &topic, &n, &oldest, &first, &next, &last); err != nil {
		return err
	}
	if st.Oldest.IsZero() || oldest.Before(st.Oldest) {
		st.Oldest = oldest.Time
	}
	if st.counted == nil {
		st.counted = make(map[int]*countedShard)
	}
	s := st.counted[shard]
	if s == nil {
		s = &countedShard{topics: make(map[string]int64), first: first, next: next.Int64, last: last}
		st.counted[shard] = s
	}
	s.topics[topic] += n
	s.n += n
	s.first = min(s.first, first)
	return nil
}

// estimate adds up the shards. Numbers in a shard are taken to stand as close behind the counted part as in it.
func (st *outboxStats) estimate() {
	for _, s := range st.counted {
		for topic, n := range s.topics {
			if s.next > 0 {
				st.Estimated = true
				n = int64(float64(n) * float64(s.last-s.first+1) / float64(s.next-s.first))
			}
			t := st.Topics[topic]
			t.Pending += n
			st.Topics[topic] = t
			st.Pending += n
		}
	}
}

func (st *outboxStats) scanDelayed(rows *sql.Rows) error {
	var topic string
	var n int64
	if err := rows.Scan(&topic, &n); err != nil {
		return err
	}
	t := st.Topics[topic]
	t.Delayed = n
	st.Topics[topic] = t
	st.Delayed += n
	return nil
}

func (st *outboxStats) scanParked(rows *sql.Rows) error {
	var topic string
	var n, waiting int64
	if err := rows.Scan(&topic, &n, &waiting); err != nil {
		return err
	}
	t := st.Topics[topic]
	t.Parked, t.Waiting = n-waiting, waiting
	st.Topics[topic] = t
	st.Parked += t.Parked
	st.Waiting += waiting
	return nil
}

func (st *outboxStats) scanRelay(rows *sql.Rows) error {
	var r outbox.RelayStats
	var until instant
	if err := rows.Scan(&r.Name, &until, &r.Shards); err != nil {
		return err
	}
	r.Until = until.Time
	st.Relays = append(st.Relays, r)
	return nil
}
