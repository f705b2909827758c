package consumer

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/txonce/txonce/internal/backoff"
	"github.com/txonce/txonce/internal/tokens"
)

// refusalLimit limits how fast messages are parked that are refused before a handler runs: mismatches, known content,
// unprovable messages, and those that have no key or cannot be read. Such a message says nothing about the handlers, so
// the other messages go on when the limit is spent. Somebody with a captured delivery of a webhook could otherwise stop
// the whole consumer: it can be sent again under any number of IDs.
type refusalLimit struct {
	logger *slog.Logger

	mu     sync.Mutex
	bucket tokens.Bucket
	logged time.Time // when the last line was written
}

// take spends one token to park a message, or says when to try again. The waits are random, so that a flood does not
// come back at once.
func (l *refusalLimit) take(ctx context.Context, err error, about ...any) (wait time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	l.bucket.Refill(now)
	if l.bucket.Unlimited() || l.bucket.Take() {
		return 0
	}
	if now.Sub(l.logged) >= time.Minute {
		l.logged = now
		l.logger.WarnContext(ctx, "too many messages are refused before their handlers run; Config.ParkLimit is spent, and those wait; other messages go on",
			append(about, "error", err)...)
	}
	return l.bucket.Next() + backoff.Draw(turnsWithin)
}

func (l *refusalLimit) giveBack() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.bucket.GiveBack(1)
}
