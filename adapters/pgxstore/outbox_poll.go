package pgxstore

import (
	"cmp"
	"context"
	"math"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/txonce/txonce/dedup/driver"
	"github.com/txonce/txonce/internal/watermark"
	outboxdriver "github.com/txonce/txonce/outbox/driver"
)

// found is the result of one poll of the shards.
type found struct {
	messages []outboxdriver.Leased

	cut         bool  // the limit of messages or bytes was reached, so there may be more messages
	full        []int // shards that returned as many messages as they were asked for
	deeper      []int // shards where more messages may follow the scanned rows: the next poll scans further
	overscanned bool  // one of the deeper shards has a cooldown, because very many of its rows were scanned
}

// polled are the shards of one poll, as columns for its statement.
type polled struct {
	numbers []int16
	tokens  []int64
	scans   []int64 // how many rows poll scans
	marks   *watermark.Poll
}

// columns returns the columns of shards for a poll of at most "most" messages from each.
func (s *outboxSession) columns(shards []int, most int) polled {
	var p polled
	p.numbers, p.tokens = s.tokens(shards)
	p.scans, p.marks = make([]int64, len(p.numbers)), s.marks.Begin(p.numbers, p.tokens)
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, n := range p.numbers {
		p.scans[i] = max(scanFirst, s.scans[shardHold{int(n), p.tokens[i]}].rows, int64(most)+1)
	}
	return p
}

// poll reads the first due messages of shards, at most "most" from each.
func (s *outboxSession) poll(ctx context.Context, shards []int, want outboxdriver.Want, most int) (f found, err error) {
	p := s.columns(shards, most)
	mosts := make([]int64, len(p.numbers))
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
	err = s.tx(ctx, "lease", func(b *pgx.Batch) {
		b.Queue(s.store.outbox.LeaseFrom, s.owner, p.numbers, p.tokens, p.scans, want.Limit, bytes, mosts,
			p.marks.Lows, p.marks.Returned, p.marks.Skips, p.marks.Untils).Query(func(rows pgx.Rows) error {
			for rows.Next() {
				m, row, err := leased(rows)
				if err != nil {
					return err
				}
				if row.mark.N == p.scans[slices.Index(p.numbers, int16(m.Shard))] {
					ends[m.Shard] = true
				}
				p.marks.Row(row.mark)
				all = all || row.mark.N > 1 && !row.held // the limits cut off last rows first
				if !row.held {
					f.messages = append(f.messages, m)
				}
			}
			return rows.Err()
		})
	})
	if err != nil {
		return found{}, err
	}
	s.marks.End(p.marks, all || len(f.messages) < want.Limit && want.Bytes == 0)
	f.note(shards, want, most, ends)
	f.trim(want)
	s.adaptScan(&f, shards, time.Since(began))
	return f, nil
}

const fewMessages = 64 // pollFew reads about so many rows at most, but at least fewRows from each shard

const fewRows = 4

// pollFew is a poll for a few messages, by a statement that takes half as long. It is used for a poll after a notification, unless the
// last poll found many messages. done is false if it was not used, or if there is more than it can read.
func (s *outboxSession) pollFew(ctx context.Context, shards []int, want outboxdriver.Want) (f found, done bool, err error) {
	limit := max(fewMessages/len(shards), fewRows)
	s.mu.Lock()
	many := s.lastFound >= fewMessages
	s.mu.Unlock()
	if !want.Notified || many || want.Limit < limit*len(shards) {
		return found{}, false, nil
	}
	p := s.columns(shards, limit)
	bytes := int64(want.Bytes) / int64(len(shards))
	if want.Bytes == 0 {
		bytes = math.MaxInt64
	}
	more := false
	err = s.tx(ctx, "lease", func(b *pgx.Batch) {
		b.Queue(s.store.outbox.LeaseFew, s.owner, p.numbers, p.tokens, p.marks.Lows, p.marks.Returned, limit, bytes, p.marks.Skips, p.marks.Untils).Query(func(rows pgx.Rows) error {
			for rows.Next() {
				m, row, err := leased(rows)
				if err != nil {
					return err
				}
				more = more || row.mark.N == int64(limit) || m.Payload == nil
				p.marks.Row(row.mark)
				if !row.held {
					f.messages = append(f.messages, m)
				}
			}
			return rows.Err()
		})
	})
	if err != nil || more {
		return found{}, false, err
	}
	s.marks.End(p.marks, true)
	slices.SortFunc(f.messages, func(a, b outboxdriver.Leased) int { return cmp.Compare(a.Seq, b.Seq) })
	return f, true, nil
}

// note records whether there may be more messages than were returned.
func (f *found) note(shards []int, want outboxdriver.Want, most int, ends map[int]bool) {
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
func (f *found) trim(want outboxdriver.Want) {
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
func leased(row pgx.Rows) (m outboxdriver.Leased, r leasedRow, err error) {
	var key []byte
	var headers *string
	if err := row.Scan(&m.Shard, &m.Token, &r.mark.N, &r.held, &m.Seq, &m.ID, &m.Topic, &key, &m.Payload, &headers, &m.Enqueued, &m.Attempts,
		&r.mark.Returned, &r.mark.Skipped, &r.mark.Until); err != nil {
		return m, r, err
	}
	r.mark.Shard, r.mark.Seq = m.Shard, m.Seq
	m.OrderingKey = string(key)
	if headers != nil {
		m.Headers, m.Unreadable = driver.DecodeHeaders([]byte(*headers))
	}
	return m, r, nil
}
