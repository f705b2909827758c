package main

import (
	"context"
	"slices"
	"time"
)

// poll is what the group has committed, per partition, or why that cannot be known.
type poll struct {
	ends    []int64
	pending int // events, once everything is committed
	err     error
}

// ask reads the group's offsets again and again, and then how many events are pending.
func (s *supervisor) ask(ctx context.Context, to chan<- poll) {
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	var failing time.Time // since when; zero: it is not
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
		case to <- poll{ends, pending, err}:
		case <-ctx.Done():
			return
		}
	}
}
