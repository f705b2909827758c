// Package tokens is a token bucket: it limits how often something may happen, with bursts.
package tokens

import (
	"errors"
	"fmt"
	"time"
)

// Limit is the size of a Bucket and its rate of filling. The zero value means the caller's default.
type Limit struct {
	Burst     int
	PerMinute int
	Unlimited bool
}

// Validate returns an error that begins with a dot and the name of the wrong field. The zero value is valid.
func (l Limit) Validate() error {
	switch {
	case l == Limit{} || l == Limit{Unlimited: true}:
		return nil
	case l.Unlimited:
		return errors.New(".Unlimited is set beside a limit: set one of them")
	case l.Burst < 1:
		return fmt.Errorf(".Burst is %d: want 1 or more, or Unlimited", l.Burst)
	case l.PerMinute < 1:
		return fmt.Errorf(".PerMinute is %d: want 1 or more, or Unlimited", l.PerMinute)
	}
	return nil
}

// Bucket starts full. It is not safe for concurrent use: callers have a mutex for the state around it.
type Bucket struct {
	limit    Limit
	tokens   float64
	refilled time.Time
}

// NewBucket returns a full Bucket. limit is valid, and not the zero value.
func NewBucket(limit Limit) Bucket {
	return Bucket{limit: limit, tokens: float64(limit.Burst), refilled: time.Now()}
}

// Unlimited reports whether Take always succeeds.
func (b *Bucket) Unlimited() bool { return b.limit.Unlimited }

// Refill adds the tokens that are due by now.
func (b *Bucket) Refill(now time.Time) {
	b.tokens = min(float64(b.limit.Burst), b.tokens+now.Sub(b.refilled).Minutes()*float64(b.limit.PerMinute))
	b.refilled = now
}

// Take takes a token. It returns false when there was none at the last Refill.
func (b *Bucket) Take() bool {
	if b.limit.Unlimited {
		return true
	}
	if b.tokens < 1 {
		return false
	}
	b.tokens--
	return true
}

// GiveBack returns n tokens that were taken and not used.
func (b *Bucket) GiveBack(n int) { b.tokens += float64(n) }

// Has reports whether n tokens were there at the last Refill.
func (b *Bucket) Has(n float64) bool { return b.tokens >= n }

// HalfFull reports whether one token, and half of the burst, were there at the last Refill.
func (b *Bucket) HalfFull() bool { return b.Has(max(1, float64(b.limit.Burst)/2)) }

// Interval is the time until one token comes back.
func (b *Bucket) Interval() time.Duration { return time.Minute / time.Duration(b.limit.PerMinute) }

// Next returns how long after the last Refill the next whole token is there. It is negative if the token was there
// already.
func (b *Bucket) Next() time.Duration { return time.Duration((1 - b.tokens) * float64(b.Interval())) }
