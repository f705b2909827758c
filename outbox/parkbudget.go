package outbox

import (
	"errors"
	"fmt"
	"sync"
	"time"
)

// ErrParkLimit says that a message would be parked, and is held back instead because Config.ParkLimit is spent.
var ErrParkLimit = errors.New("outbox: parking limit spent")

// ParkLimit is a rate. The zero value stands for the default of Config.ParkLimit.
type ParkLimit struct {
	Burst     int // how many at once
	PerMinute int // and how many of them come back in a minute
	Unlimited bool
}

func (l ParkLimit) validate() error {
	switch {
	case l == ParkLimit{} || l == ParkLimit{Unlimited: true}:
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

// parkLogPause is between two log lines that say that the limit is spent.
const parkLogPause = time.Minute

// parkBudget is a token bucket. It is safe for concurrent use.
type parkBudget struct {
	limit ParkLimit

	mu     sync.Mutex
	tokens float64
	at     time.Time // when tokens were counted
	logged time.Time // when it was last said that they are spent
}

func newParkBudget(limit ParkLimit) *parkBudget {
	return &parkBudget{limit: limit, tokens: float64(limit.Burst), at: time.Now()}
}

// take spends one token, or says when the next one is there, and whether to log that.
func (b *parkBudget) take() (wait time.Duration, log bool) {
	if b.limit.Unlimited {
		return 0, false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	b.tokens = min(float64(b.limit.Burst), b.tokens+now.Sub(b.at).Minutes()*float64(b.limit.PerMinute))
	b.at = now
	if b.tokens >= 1 {
		b.tokens--
		return 0, false
	}
	if log = b.logged.IsZero() || now.Sub(b.logged) >= parkLogPause; log {
		b.logged = now
	}
	wait = time.Duration((1 - b.tokens) / float64(b.limit.PerMinute) * float64(time.Minute))
	return max(wait, time.Millisecond), log
}

// giveBack returns n tokens that were taken for nothing.
func (b *parkBudget) giveBack(n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.tokens += float64(n)
}
