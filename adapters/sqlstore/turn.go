package sqlstore

import (
	"context"
	"errors"
	"sync/atomic"
	"time"
)

// turn lets one transaction of a process write at a time: waiting here is fair and costs no connection, while SQLite's
// own way of waiting is to ask again and again.
type turn struct {
	held  chan struct{} // holds one element while somebody writes
	taken atomic.Int64  // how often
	wait  time.Duration
}

func newTurn(wait time.Duration) *turn { return &turn{held: make(chan struct{}, 1), wait: wait} }

// errNoTurn is Retryable: it says nothing about the message.
var errNoTurn = errors.New("sqlstore: another transaction of this process keeps writing")

// enter waits until it is the caller's turn. A queue that moves may take as long as it does; one transaction that does not
// end within wait is an error.
func (t *turn) enter(ctx context.Context) (leave func(), err error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	ticker := time.NewTicker(t.wait)
	defer ticker.Stop()
	for before := t.taken.Load(); ; before = t.taken.Load() {
		select {
		case t.held <- struct{}{}:
			t.taken.Add(1)
			return func() { <-t.held }, nil
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-ticker.C:
			if t.taken.Load() == before {
				return nil, errNoTurn
			}
		}
	}
}
