package consumer

import (
	"context"
	"log/slog"
	"sync"

	"github.com/txonce/txonce/dedup"
)

// inFlightToLog is how many times in a row a key was in flight elsewhere when somebody should look: a process that is
// frozen keeps its claims until the database ends its transaction.
const inFlightToLog = 10

// inFlightMost bounds the memory for keys that another node went on with.
const inFlightMost = 1000

// inFlight counts how often in a row keys were in flight elsewhere.
type inFlight struct {
	mu     sync.Mutex
	counts map[dedup.KeyHash]int
}

// again counts one more, and logs the key once. It returns the count.
func (f *inFlight) again(ctx context.Context, logger *slog.Logger, it *item, err error) int {
	f.mu.Lock()
	if f.counts == nil || len(f.counts) >= inFlightMost {
		f.counts = map[dedup.KeyHash]int{}
	}
	f.counts[it.derived]++
	n := f.counts[it.derived]
	f.mu.Unlock()
	if n == inFlightToLog {
		logger.WarnContext(ctx, "message deferred again and again: another transaction keeps its key; is a process frozen?",
			"consumer", it.rec.Key.Consumer, "key", it.rec.Key.ID, "position", it.msg.Position, "times", n, "error", err)
	}
	return n
}

// known reports that key was in flight when it was tried last.
func (f *inFlight) known(key dedup.KeyHash) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.counts[key] > 0
}

// over forgets a key that was answered.
func (f *inFlight) over(key dedup.KeyHash) {
	f.mu.Lock()
	if len(f.counts) > 0 {
		delete(f.counts, key)
	}
	f.mu.Unlock()
}
