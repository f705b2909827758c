package consumer

import (
	"time"

	"github.com/txonce/txonce/internal/backoff"
)

// The default Config.Backoff.
const (
	DefaultBackoffBase = 100 * time.Millisecond
	DefaultBackoffCap  = 10 * time.Second
)

// FullJitter returns an exponential backoff: a random duration up to base * 2^(attempt-1), and at most limit. Attempts start at
// 1. The jitter is full because clients that failed together would otherwise come back together.
func FullJitter(base, limit time.Duration) func(attempt int) time.Duration {
	return backoff.FullJitter(base, limit)
}
