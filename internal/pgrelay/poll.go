package pgrelay

import (
	"cmp"
	"context"
	"math"
	"slices"
	"time"

	"github.com/txonce/txonce/internal/shares"
	"github.com/txonce/txonce/internal/watermark"
	"github.com/txonce/txonce/outbox/driver"
)

// found is the result of one poll of the shards.
type found struct {
	messages []driver.Leased

	cut         bool  // the limit of messages or bytes was reached, so there may be more messages
	full        []int // shards that returned as many messages as they were asked for
	deeper      []int // shards where more messages may follow the scanned rows: the next poll scans further
	overscanned bool  // one of the deeper shards has a cooldown, because very many of its rows were scanned
}

// poll reads the first due messages of shards, at most "most" from each.
func (s *Session) poll(ctx context.Context, run Run, shards []int, want driver.Want, most int) (f found, err error) {
	numbers, tokens := s.held.tokens(shards)
	rows, marks := s.scans.rows(numbers, tokens, most), s.marks.Begin(numbers, tokens)
	mosts := make([]int64, len(numbers))
	for i := range mosts {
		mosts[i] = int64(most)
	}
	bytes := int64(want.Bytes)
	if bytes == 0 {
		bytes = math.MaxInt64
	}
	began := time.Now()
	ends := map[int]bool{}
	all := false // the limits have cut off no shard's first row
	err = run(ctx, "lease", Step{
		SQL: s.cfg.SQL.LeaseFrom,
		Args: []any{
			s.owner, numbers, tokens, rows, want.Limit, bytes, mosts, marks.Lows, marks.Returned, marks.Skips,
			marks.Untils,
		},
		Row: func(r shares.Row) error {
			m, row, err := leased(r)
			if err != nil {
				return err
			}
			if row.mark.N == rows[slices.Index(numbers, int16(m.Shard))] {
				ends[m.Shard] = true
			}
			marks.Row(row.mark)
			all = all || row.mark.N > 1 && !row.held // the limits cut off last rows first
			if !row.held {
				f.messages = append(f.messages, m)
			}
			return nil
		},
	})
	if err != nil {
		return found{}, err
	}
	s.marks.End(marks, all || len(f.messages) < want.Limit && want.Bytes == 0)
	f.note(shards, want, most, ends)
	f.trim(want)
	f.overscanned = s.scans.adapt(numbers, tokens, f.deeper, time.Since(began))
	return f, nil
}

const fewMessages = 64 // pollFew reads about so many rows at most, but at least fewRows from each shard

const fewRows = 4

// pollFew is a poll for a few messages, by a statement that takes half as long. It is used for a poll after a
// notification, unless the last poll found many messages. done is false if it was not used, or if there is more than it
// can read.
func (s *Session) pollFew(ctx context.Context, run Run, shards []int,
	want driver.Want,
) (f found, done bool, err error) {
	limit := max(fewMessages/len(shards), fewRows)
	if !want.Notified || s.found.Load() >= fewMessages || want.Limit < limit*len(shards) {
		return found{}, false, nil
	}
	numbers, tokens := s.held.tokens(shards)
	marks := s.marks.Begin(numbers, tokens)
	bytes := int64(want.Bytes) / int64(len(shards))
	if want.Bytes == 0 {
		bytes = math.MaxInt64
	}
	more := false
	err = run(ctx, "lease", Step{
		SQL:  s.cfg.SQL.LeaseFew,
		Args: []any{s.owner, numbers, tokens, marks.Lows, marks.Returned, limit, bytes, marks.Skips, marks.Untils},
		Row: func(r shares.Row) error {
			m, row, err := leased(r)
			if err != nil {
				return err
			}
			more = more || row.mark.N == int64(limit) || m.Payload == nil
			marks.Row(row.mark)
			if !row.held {
				f.messages = append(f.messages, m)
			}
			return nil
		},
	})
	if err != nil || more {
		return found{}, false, err
	}
	s.marks.End(marks, true)
	slices.SortFunc(f.messages, func(a, b driver.Leased) int { return cmp.Compare(a.Seq, b.Seq) })
	return f, true, nil
}

// note records whether there may be more messages than were returned.
func (f *found) note(shards []int, want driver.Want, most int, ends map[int]bool) {
	per := map[int]int{}
	bytes := 0
	for i := range f.messages {
		per[f.messages[i].Shard]++
		bytes += len(f.messages[i].Payload)
	}
	f.cut = len(f.messages) >= want.Limit || want.Bytes > 0 && bytes > want.Bytes/2
	for _, n := range shards {
		switch {
		case per[n] >= most:
			f.full = append(f.full, n)
		case ends[n]:
			f.deeper = append(f.deeper, n)
		}
	}
}

// trim cuts the messages at the exact number of bytes. The server only estimates sizes.
func (f *found) trim(want driver.Want) {
	if want.Bytes == 0 {
		return
	}
	room := want.Bytes
	for i := range f.messages {
		m := &f.messages[i]
		room -= len(m.Payload) + len(m.OrderingKey)
		for name, value := range m.Headers {
			room -= len(name) + len(value)
		}
		if room < 0 && i > 0 {
			f.messages, f.cut = f.messages[:i], true
			return
		}
	}
}

// leasedRow holds the columns of LeaseFrom and LeaseFew that are not part of the message.
type leasedRow struct {
	held bool // it waits for its own retry or behind another message
	mark watermark.Row
}

// leased reads one row of LeaseFrom or LeaseFew.
func leased(row shares.Row) (m driver.Leased, r leasedRow, err error) {
	var key []byte
	var headers *string
	if err := row.Scan(
		&m.Shard, &m.Token, &r.mark.N, &r.held, &m.Seq, &m.ID, &m.Topic, &key, &m.Payload, &headers, &m.Enqueued,
		&m.Attempts,
		&r.mark.Returned, &r.mark.Skipped, &r.mark.Until,
	); err != nil {
		return m, r, err
	}
	r.mark.Shard, r.mark.Seq = m.Shard, m.Seq
	m.OrderingKey, m.Enqueued = string(key), m.Enqueued.UTC()
	m.Headers, m.Unreadable = decodeHeaders(headers)
	return m, r, nil
}
