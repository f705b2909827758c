package sqlite

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/txonce/txonce/internal/await"
)

// writerTurn lets one transaction of a process write at a time. Waiting for the turn is fair and needs no connection,
// while SQLite itself only polls for its lock.
type writerTurn struct {
	wait           time.Duration
	held           chan struct{} // holds one element while a transaction writes
	taken          atomic.Int64  // how often the turn was taken
	used           time.Duration // how long this process has written without a pause; only the current writer uses it
	contendedUntil time.Time     // until when other processes are assumed to wait; only the current writer uses it
}

func newWriterTurn(wait time.Duration) *writerTurn {
	return &writerTurn{held: make(chan struct{}, 1), wait: wait}
}

// Processes do not queue for SQLite's lock. The process that has just committed tries again first, and may win for
// seconds. (In a measurement with 3 processes and transactions of 100 ms, one process got 62 turns and another 1.) So a
// process that recently met another writer pauses for yieldFor after each slice. Waiting processes try more often than
// that; see DB.RetryBusy.
const (
	slice           = 50 * time.Millisecond
	yieldFor        = 3 * time.Millisecond
	contentionLasts = time.Second
)

// noteContention records that another process was writing. Only the current writer calls it.
func (t *writerTurn) noteContention() {
	t.contendedUntil = time.Now().Add(contentionLasts)
	t.used = 0
}

// errNoTurn is Retryable, because it says nothing about the message.
var errNoTurn = errors.New("sqlstore: another transaction of this process keeps writing")

// enter waits for the caller's turn. The wait has no limit while other transactions take their turns. It fails when one
// transaction keeps its turn for longer than wait.
func (t *writerTurn) enter(ctx context.Context) (leave func(), err error) {
	if err := t.queue(ctx); err != nil {
		return nil, err
	}
	began := time.Now()
	if t.used >= slice && began.Before(t.contendedUntil) {
		if err := await.Sleep(ctx, yieldFor); err != nil {
			<-t.held
			return nil, err
		}
		t.used = 0
		began = time.Now()
	}
	return func() {
		t.used += time.Since(began)
		<-t.held
	}, nil
}

func (t *writerTurn) queue(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	ticker := time.NewTicker(t.wait)
	defer ticker.Stop()
	for before := t.taken.Load(); ; before = t.taken.Load() {
		select {
		case t.held <- struct{}{}:
			t.taken.Add(1)
			return nil
		case <-ctx.Done():
			return ctx.Err()
		case <-ticker.C:
			if t.taken.Load() == before {
				return errNoTurn
			}
		}
	}
}
