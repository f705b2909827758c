package consumer

import (
	"time"

	"github.com/txonce/txonce/outbox"
)

// The default Config.Backoff.
const (
	DefaultBackoffBase = 100 * time.Millisecond
	DefaultBackoffCap  = 10 * time.Second
)

// FullJitter returns an exponential backoff: after attempt n, anything up to base * 2^(n-1), and never more than limit.
// The jitter is full because clients that failed together would otherwise come back together.
func FullJitter(base, limit time.Duration) func(attempt int) time.Duration {
	return outbox.FullJitter(base, limit)
}
