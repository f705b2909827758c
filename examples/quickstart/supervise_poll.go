package main

import (
	"context"
	"slices"
	"time"
)

// pollResult is the committed offset of each partition, or the error of reading it.
type pollResult struct {
	ends    []int64
	pending int // events, once everything is committed
	err     error
}

// poll reads the group's offsets, and the number of pending events once all offsets are committed, until ctx ends.
func (s *supervisor) poll(ctx context.Context, to chan<- pollResult) {
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	var failing time.Time // since when polls fail; zero: the last one succeeded
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		pending := 0
		ends, err := s.broker.Finished(ctx)
		if err == nil && slices.Equal(ends, s.broker.Ends()) {
			pending, err = s.pending(ctx)
		}
		if err == nil {
			failing = time.Time{}
		} else if failing.IsZero() {
			failing = time.Now()
		}
		if err != nil && time.Since(failing) < patience {
			continue // the broker may be restarting
		}
		select {
		case to <- pollResult{ends, pending, err}:
		case <-ctx.Done():
			return
		}
	}
}
