package watermark

import (
	"math"
	"time"
)

// skipLimit is how long a skip is used at most.
const skipLimit = time.Minute

// Poll is one poll of some shards. If messages have returned to a shard another number of times than Returned, the poll
// begins at the shard's first row. Otherwise it begins at Skips while the server's clock is before Untils, and then at
// Lows.
type Poll struct {
	Lows, Returned, Skips, Untils []int64

	shards []int16
	tokens []int64
	passed int64 // the watermark from before the poll
	epoch  int
	seen   map[int16]seen
}

// seen is what a poll has read of a shard.
type seen struct {
	returned int64 // how often messages have returned to it
	skipped  bool  // the poll began at the skip
	first    int64 // the seq of its first row; 0: not read
	waiting  int64 // all rows below this seq, from where the poll began, wait until "until"
	until    int64
}

// Row is what the statement of a poll says about a row. It must read all of this from one snapshot.
type Row struct {
	Shard    int
	Seq      int64
	N        int64 // its position among the rows of the shard, from where the poll began; the first is 1
	Returned int64 // how often messages have returned to the shard
	Skipped  bool  // the poll of the shard began at Poll.Skips
	Until    int64 // all rows of the shard before it, from where the poll began, wait until then; 0: not known
}

// Begin begins a poll of shards. Call it before the statement is sent.
func (m *Marks) Begin(shards []int16, tokens []int64) *Poll {
	m.mu.Lock()
	defer m.mu.Unlock()
	p := &Poll{
		Lows: make([]int64, len(shards)), Returned: make([]int64, len(shards)), Skips: make([]int64, len(shards)),
		Untils: make([]int64, len(shards)),
		shards: shards, tokens: tokens, passed: m.sequence.passed, epoch: m.sequence.epoch,
		seen: make(map[int16]seen, len(shards)),
	}
	if m.lows == nil {
		m.lows = make(map[int16]low)
	}
	for i, n := range shards {
		l := m.lows[n]
		if l.token != tokens[i] {
			l = low{token: tokens[i]}
			m.lows[n] = l
		}
		p.Lows[i], p.Returned[i] = l.seq, l.returned
		if l.skip.seq > l.seq && time.Since(l.skip.since) < skipLimit {
			p.Skips[i], p.Untils[i] = l.skip.seq, l.skip.until
		}
	}
	return p
}

// Row records a row, whether its message waits or not. Those of a shard come in the order of Seq.
func (p *Poll) Row(r Row) {
	s := p.seen[int16(r.Shard)]
	s.returned, s.skipped = r.Returned, r.Skipped
	switch {
	case r.N == 1:
		s.first, s.waiting, s.until = r.Seq, r.Seq, math.MaxInt64
	case r.Until > 0:
		s.waiting, s.until = r.Seq, r.Until
	}
	p.seen[int16(r.Shard)] = s
}

// nothing is what a poll has seen of a shard in which it found no row. See Row for returned and skipped.
func nothing(returned int64, skipped bool) seen {
	return seen{
		returned: returned, skipped: skipped, first: math.MaxInt64, waiting: math.MaxInt64,
		until: math.MaxInt64,
	}
}

// End raises the lows and the skips of the shards of p after its statement has returned. all says that p has at least
// the first row of each shard that has rows, so that a shard without any is empty.
func (m *Marks) End(p *Poll, all bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.sequence.epoch != p.epoch {
		return // the lows were dropped while the poll ran
	}
	for i, n := range p.shards {
		l := m.lows[n]
		if l.token != p.tokens[i] {
			continue
		}
		got, any := p.seen[n]
		if !any && all {
			got, any = nothing(p.Returned[i], p.Skips[i] > 0), true
		}
		switch waiting := min(got.waiting, p.passed+1); {
		case !any:
		case got.returned != l.returned: // messages have returned, so the poll began at the first row
			l = low{token: l.token, returned: got.returned}
		case !got.skipped:
			l.seq = max(l.seq, min(got.first, p.passed+1))
			l.skip = skip{waiting, got.until, time.Now()}
		case l.skip.seq == p.Skips[i] && waiting > l.skip.seq:
			l.skip.seq, l.skip.until = waiting, min(l.skip.until, got.until)
		}
		m.lows[n] = l
	}
}
