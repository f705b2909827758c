package watermark

import (
	"context"
	"sync"
	"time"
)

// Marks are the watermark and the lows of one session. They are safe for concurrent use. But the caller must read the
// sequence and call Notice or Move before it reads the sequence again: a late answer would look like a sequence that
// was set back.
type Marks struct {
	// Warn is called when the database was set back to an older state. args say how that was noticed, as those of slog.
	// It must not call Marks. nil: nobody is warned.
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
	returned int64 // how often messages had returned to the shard; with another number the low does not hold
	seq      int64
	skip     skip
}

// skip is where the polls of a shard begin for some time.
type skip struct {
	seq   int64
	until int64     // in microseconds since 1970, by the server's clock
	since time.Time // by this process's clock
}

// Hold says which shards the session holds, with their tokens, and how often messages have returned to them. Lows that
// do not hold are dropped. Hold is optional: without it, the first poll of a shard finds out how often messages have
// returned, and the second one raises the low.
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

const (
	// after so many messages the watermark moves, because polls read their dead rows until then
	manyLeased    = 1000
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

// Move moves the watermark. last is the last seq that the sequence has assigned. server is another number after the
// server has started or recovered from a crash. writers are the transactions that held a lock on the table of messages
// when they were read, after last.
func (m *Marks) Move(ctx context.Context, server, last int64, writers []string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.notice(ctx, server, last)
	m.sequence.move(server, last, writers)
}

// Notice drops the watermark and all lows if the sequence was set back, or may have been.
func (m *Marks) Notice(ctx context.Context, server, last int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.notice(ctx, server, last)
}

func (m *Marks) notice(ctx context.Context, server, last int64) {
	if !m.sequence.outdated(server, last) {
		return
	}
	if last < m.sequence.next {
		m.warn(ctx, "sequence", last, "before", m.sequence.next)
	}
	m.drop()
}

// drop makes the next poll of each shard begin at its first row. Polls that run already raise no low.
func (m *Marks) drop() {
	m.sequence = sequence{epoch: m.sequence.epoch + 1}
	for n, l := range m.lows {
		m.lows[n] = low{token: l.token, returned: l.returned}
	}
}

func (m *Marks) warn(ctx context.Context, args ...any) {
	if m.Warn != nil {
		m.Warn(ctx, args...)
	}
}
