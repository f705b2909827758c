package sqlite

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/txonce/txonce/internal/await"
)

// writerTurn lets one transaction of a process write at a time: waiting here is fair and costs no connection, while SQLite's
// own way of waiting is to ask again and again.
type writerTurn struct {
	wait    time.Duration
	held    chan struct{} // holds one element while somebody writes
	taken   atomic.Int64  // how often
	used    time.Duration // how long this process has had the database to itself; belongs to the writer whose turn it is
	crowded time.Time     // until when other processes are taken to wait too; likewise
}

func newWriterTurn(wait time.Duration) *writerTurn {
	return &writerTurn{held: make(chan struct{}, 1), wait: wait}
}

// Between processes nobody queues: the process that has just committed asks again first, and wins for seconds on end (seen: 3 processes
// with transactions of 100 ms, one got 62 turns, another 1). So a process that met another one lately steps back for a
// moment after each slice of time. The others ask more often than that; see DB.RetryBusy.
const (
	slice      = 50 * time.Millisecond
	courtesy   = 3 * time.Millisecond
	crowdedFor = time.Second
)

// crowd notes that another process was writing. The writer whose turn it is calls it.
func (t *writerTurn) crowd() {
	t.crowded = time.Now().Add(crowdedFor)
	t.used = 0
}

// errNoTurn is Retryable: it says nothing about the message.
var errNoTurn = errors.New("sqlstore: another transaction of this process keeps writing")

// enter waits until it is the caller's turn. A queue that moves may take as long as it does; one transaction that does not
// end within wait is an error.
func (t *writerTurn) enter(ctx context.Context) (leave func(), err error) {
	if err := t.queue(ctx); err != nil {
		return nil, err
	}
	began := time.Now()
	if t.used >= slice && began.Before(t.crowded) {
		if err := await.Sleep(ctx, courtesy); err != nil {
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
