package consumer

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

// retryLogEvery is the least time between two lines of a retryLog: after a broken deployment, each message fails.
const retryLogEvery = time.Second

// retryLog logs failed attempts that are followed by another one. The last attempt has the line about the dead letter.
type retryLog struct {
	logger *slog.Logger

	mu      sync.Mutex
	logged  time.Time
	skipped int // failures since then that have no line
}

func (l *retryLog) failed(ctx context.Context, it *item, err error) {
	l.mu.Lock()
	now := time.Now()
	if now.Sub(l.logged) < retryLogEvery {
		l.skipped++
		l.mu.Unlock()
		return
	}
	skipped := l.skipped
	l.logged, l.skipped = now, 0
	l.mu.Unlock()
	attrs := append(it.attrs(), "attempt", max(it.msg.Attempt, 1), "error", err)
	if skipped > 0 {
		attrs = append(attrs, "failures_without_a_line", skipped)
	}
	l.logger.WarnContext(ctx, "a handler failed; its message is tried again", attrs...)
}
