package watermark

import (
	"context"
	"time"
)

const (
	checkCalls = 30 // each shard is checked once in this many calls of NextCheck
	// after a check there is none for this many times its duration, because dead rows may make it slow
	checkCooldown = 20
)

// Check is a search for messages below the lows of some shards. It finds some only if a person has changed the table or
// the sequence, or if the database was set back to an older state in a way that Notice does not see.
type Check struct {
	Shards         []int16
	Lows, Returned []int64 // a low holds if Returned is how often messages have returned to the shard

	began time.Time
	epoch int
}

// NextCheck returns which of shards to search next. The caller's Maintain calls it once a second.
func (m *Marks) NextCheck(shards []int16, tokens []int64) Check {
	m.mu.Lock()
	defer m.mu.Unlock()
	// not nil, which would be NULL
	c := Check{began: time.Now(), epoch: m.sequence.epoch, Shards: []int16{}, Lows: []int64{}, Returned: []int64{}}
	if c.began.Before(m.checkAt) {
		return c
	}
	for range (len(shards) + checkCalls - 1) / checkCalls {
		m.checked++
		i := m.checked % len(shards)
		if l := m.lows[shards[i]]; l.token == tokens[i] && l.seq > 1 {
			c.Shards, c.Lows, c.Returned = append(c.Shards, shards[i]), append(c.Lows, l.seq),
				append(c.Returned, l.returned)
		}
	}
	return c
}

// Checked drops the watermark and all lows if c has found shards with messages below.
func (m *Marks) Checked(ctx context.Context, c Check, below []int16) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(c.Shards) > 0 {
		m.checkAt = time.Now().Add(checkCooldown * time.Since(c.began))
	}
	if len(below) == 0 || m.sequence.epoch != c.epoch {
		return
	}
	passed := m.sequence.passed
	m.drop()
	m.warn(ctx, "shards", below, "checked", c.Shards, "lows", c.Lows, "watermark", passed)
}
