// Package backoff computes how long to wait before the next attempt.
package backoff

import "time"

// The default of consumer.Config.Backoff is FullJitter(Base, Cap).
const (
	Base = 100 * time.Millisecond
	Cap  = 10 * time.Second
)

// FullJitter returns a function that returns a random duration up to base*2^(attempt-1), and at most limit. The jitter
// is full because messages that failed together would otherwise come back together. Attempts start at 1.
func FullJitter(base, limit time.Duration) func(attempt int) time.Duration {
	return func(attempt int) time.Duration {
		ceiling := doubled(base, limit, attempt)
		if ceiling <= 0 {
			return 0
		}
		return 1 + Draw(ceiling)
	}
}

// HalfJitter returns a random duration between half of base*2^(failures-1) and all of it; base*2^(failures-1) is at
// most limit. It is never close to zero: use it where only one caller retries.
func HalfJitter(base, limit time.Duration, failures int) time.Duration {
	return Jitter(doubled(base, limit, failures))
}

// Jitter returns a random duration between half of d and d.
func Jitter(d time.Duration) time.Duration {
	if d <= 0 {
		return 0
	}
	return d/2 + Draw(d/2+1)
}

// doubled returns base*2^(n-1), at most limit.
func doubled(base, limit time.Duration, n int) time.Duration {
	d := min(base, limit)
	if d <= 0 {
		return 0
	}
	for range n - 1 {
		if d > limit-d { // a shift by n would overflow
			return limit
		}
		d *= 2
	}
	return d
}
