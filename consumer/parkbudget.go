package consumer

import (
	"sync"
	"time"
)

// parkBudget is a token bucket.
type parkBudget struct {
	limit ParkLimit

	mu     sync.Mutex
	tokens float64
	at     time.Time // when tokens were counted
	logged bool      // that they are spent
}

func newParkBudget(limit ParkLimit) *parkBudget {
	return &parkBudget{limit: limit, tokens: float64(limit.Burst), at: time.Now()}
}

// take spends one token, or says when the next one is there. begins reports that a pause does: a flood that is let in drop
// by drop is one pause until half of the burst is back.
func (b *parkBudget) take() (wait time.Duration, begins bool) {
	if b.limit.Unlimited {
		return 0, false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	b.tokens = min(float64(b.limit.Burst), b.tokens+now.Sub(b.at).Minutes()*float64(b.limit.PerMinute))
	b.at = now
	if b.tokens >= max(1, float64(b.limit.Burst)/2) {
		b.logged = false
	}
	if b.tokens >= 1 {
		b.tokens--
		return 0, false
	}
	begins, b.logged = !b.logged, true
	wait = time.Duration((1 - b.tokens) / float64(b.limit.PerMinute) * float64(time.Minute))
	return max(wait, time.Millisecond), begins
}

// giveBack returns a token that was taken for nothing.
func (b *parkBudget) giveBack() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.tokens++
}
