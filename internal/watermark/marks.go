package watermark

import (
	"context"
	"sync"
	"time"
)

// Marks are the watermark and the lows of one session. They are safe for concurrent use, except that the caller must not read the
// sequence for Notice or Move while another read of it is not processed yet: a late answer would look like a sequence that was set back.
type Marks struct {
	// Warn is called when the database was set back to an older state. args say how that was noticed, as those of slog. It must not call
	// Marks. nil: nobody is warned.
	Warn func(ctx context.Context, args ...any)

	mu       sync.Mutex
	sequence sequence
	lows     map[int16]low // by shard
	leased   int           // messages leased since the watermark was last moved
	movedAt  time.Time
	checked  int       // counts the shards that were checked
	checkAt  time.Time // no check before this time
}

// low is where the polls of a shard begin.
type low struct {
	token    int64 // of the shard; with another token the low does not hold
	seq      int64
	returned int64 // how often messages had returned to the shard; with another number the low does not hold
}

// Hold says which shards the session holds, with their tokens, and how often messages have returned to them. Lows that do not hold are
// dropped. Begin needs no call of Hold: it saves a poll from the first row of a shard that is empty.
func (m *Marks) Hold(tokens, returned map[int]int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	lows := make(map[int16]low, len(tokens))
	for n, token := range tokens {
		l := m.lows[int16(n)]
		if l.token != token || l.returned != returned[n] {
			l = low{token: token, returned: returned[n]}
		}
		lows[int16(n)] = l
	}
	m.lows = lows
}

// Poll is one poll of some shards. The poll of a shard begins at Lows if Returned is how often messages have returned to it, and
// otherwise at its first row.
type Poll struct {
	Lows, Returned []int64

	shards []int16
	tokens []int64
	passed int64 // the watermark from before the poll
	epoch  int
	seen   map[int16]seen
}

// seen is what a poll has read of a shard.
type seen struct {
	returned int64 // how often messages have returned to it
	first    int64 // the seq of its first row; 0: not read
	empty    bool
}

// Begin begins a poll of shards. Call it before the statement is sent.
func (m *Marks) Begin(shards []int16, tokens []int64) *Poll {
	m.mu.Lock()
	defer m.mu.Unlock()
	p := &Poll{
		Lows: make([]int64, len(shards)), Returned: make([]int64, len(shards)),
		shards: shards, tokens: tokens, passed: m.sequence.passed, epoch: m.sequence.epoch, seen: make(map[int16]seen, len(shards)),
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
	}
	return p
}

// First records the first row that the poll has found in a shard, whether the message waits or not, and how often messages have returned to
// the shard. The statement of the poll must read both from one snapshot.
func (p *Poll) First(shard int, seq, returned int64) {
	p.seen[int16(shard)] = seen{returned: returned, first: seq}
}

// Later records a row that is not the first one of its shard.
func (p *Poll) Later(shard int, returned int64) {
	s := p.seen[int16(shard)]
	s.returned = returned
	p.seen[int16(shard)] = s
}

// Empty records that the poll has found no row in a shard.
func (p *Poll) Empty(shard int, returned int64) {
	p.seen[int16(shard)] = seen{returned: returned, empty: true}
}

// End raises the lows of the shards of p after its statement has returned. all says that p has at least the first row of each shard that has
// rows, so that a shard without any is empty.
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
		switch got, any := p.seen[n]; {
		case any && got.returned != l.returned: // messages have returned, so the poll began at the first row
			l.seq, l.returned = 0, got.returned
		case l.returned != p.Returned[i]: // another poll has noticed that
		case got.first > 0:
			l.seq = max(l.seq, min(got.first, p.passed+1))
		case got.empty, !any && all:
			l.seq = max(l.seq, p.passed+1)
		}
		m.lows[n] = l
	}
}

const (
	manyLeased    = 1000                  // after so many messages polls read over their dead rows
	manyLeasedPer = 50 * time.Millisecond // but the watermark is not moved more often
)

// Leased counts leased messages. The watermark passes them when it is moved again.
func (m *Marks) Leased(messages int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.leased += messages
}

// Due reports whether many messages were leased since the watermark was moved.
func (m *Marks) Due() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.leased >= manyLeased && time.Since(m.movedAt) >= manyLeasedPer
}

// Behind reports whether the watermark may pass messages that were committed by now.
func (m *Marks) Behind() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.leased > 0 || m.sequence.behind()
}

// Moving says that the caller will read what Move needs. Messages that are leased from then on count for the next time.
func (m *Marks) Moving() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.movedAt, m.leased = time.Now(), 0
}

// Move moves the watermark. last is the last seq that the sequence of the server, identified by the time of its start, has assigned. writers are the
// transactions that held a lock on the table of messages when they were read, after last.
func (m *Marks) Move(ctx context.Context, server, last int64, writers []string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.notice(ctx, server, last)
	m.sequence.move(server, last, writers)
}

// Notice drops the watermark and all lows if the sequence was set back, or may have been, and reports whether it has.
func (m *Marks) Notice(ctx context.Context, server, last int64) (dropped bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.notice(ctx, server, last)
}

func (m *Marks) notice(ctx context.Context, server, last int64) bool {
	if !m.sequence.outdated(server, last) {
		return false
	}
	if last < m.sequence.next {
		m.warn(ctx, "sequence", last, "before", m.sequence.next)
	}
	m.drop()
	return true
}

// drop makes the next poll of each shard begin at its first row. Polls that run already raise no low.
func (m *Marks) drop() {
	m.sequence = sequence{epoch: m.sequence.epoch + 1}
	for n, l := range m.lows {
		l.seq = 0
		m.lows[n] = l
	}
}

func (m *Marks) warn(ctx context.Context, args ...any) {
	if m.Warn != nil {
		m.Warn(ctx, args...)
	}
}
