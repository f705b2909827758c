package consumer

import (
	"time"

	"github.com/txonce/txonce/internal/backoff"
)

// FullJitter returns an exponential backoff: a random duration up to base * 2^(attempt-1), and at most limit. Attempts
// start at
// 1. The duration is random from 0, so that clients that failed at the same time do not retry at the same time.
func FullJitter(base, limit time.Duration) func(attempt int) time.Duration {
	return backoff.FullJitter(base, limit)
}
