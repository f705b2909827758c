package outbox

import (
	"math/rand/v2"
	"time"
)

// The default Config.Backoff.
const (
	DefaultBackoffBase = 100 * time.Millisecond
	DefaultBackoffCap  = time.Minute
)

// FullJitter returns an exponential backoff: after attempt n, anything up to base * 2^(n-1), and never more than limit.
// The jitter is full because messages that failed together would otherwise come back together.
func FullJitter(base, limit time.Duration) func(attempt int) time.Duration {
	return func(attempt int) time.Duration {
		ceiling := min(base, limit)
		if ceiling <= 0 {
			return 0
		}
		for range attempt - 1 {
			if ceiling > limit-ceiling { // a shift by attempt would overflow
				ceiling = limit
				break
			}
			ceiling *= 2
		}
		return 1 + rand.N(ceiling)
	}
}
