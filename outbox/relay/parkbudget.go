package relay

import (
	"errors"
	"sync"
	"time"

	"github.com/txonce/txonce/internal/tokens"
)

// ErrParkLimit is in the error of a message that was deferred instead of parked, because Config.ParkLimit is spent.
var ErrParkLimit = errors.New("relay: parking limit spent")

// ParkLimit is a rate. The zero value means the default of Config.ParkLimit.
type ParkLimit struct {
	Burst     int // how many at once
	PerMinute int // how many more may be parked each minute, up to Burst at once
	Unlimited bool
}

// parkLogInterval is the time between two log lines that say that the limit is spent.
const parkLogInterval = time.Minute

// parkBudget limits how fast messages are parked: parking one takes a token. It is safe for concurrent use.
type parkBudget struct {
	mu     sync.Mutex
	bucket tokens.Bucket
	logged time.Time // last line that said that no token was left
}

func newParkBudget(limit ParkLimit) *parkBudget {
	return &parkBudget{bucket: tokens.NewBucket(tokens.Limit(limit))}
}

// take takes a token, or returns how long it takes until the next one is there, and whether to log that.
func (b *parkBudget) take() (wait time.Duration, log bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	b.bucket.Refill(now)
	if b.bucket.Take() {
		return 0, false
	}
	if log = b.logged.IsZero() || now.Sub(b.logged) >= parkLogInterval; log {
		b.logged = now
	}
	return max(b.bucket.Next(), time.Millisecond), log
}

// giveBack returns n tokens that were taken and not used.
func (b *parkBudget) giveBack(n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.bucket.GiveBack(n)
}
