package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// patience limits one measurement, so that a system that loses a message ends the run.
const patience = 5 * time.Minute

// tally counts messages that are done, and knows when the first and the last was.
type tally struct {
	mu          sync.Mutex
	want, count int
	done        chan struct{} // closed when want messages are done
	first, last time.Time
}

func newTally(want int) *tally {
	t := &tally{}
	t.reset(want)
	return t
}

func (t *tally) reset(want int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.want, t.count, t.done = want, 0, make(chan struct{})
}

// add returns how many messages are done now.
func (t *tally) add(n int) int {
	now := time.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.count == 0 && n > 0 {
		t.first = now
	}
	missing := t.want - t.count
	t.count += n
	if missing > 0 && t.count >= t.want {
		t.last = now
		close(t.done)
	}
	return t.count
}

// perSecond leaves out what was done with the first message, because the time before that is unknown.
func (t *tally) perSecond() float64 {
	return float64(t.want-1) / t.last.Sub(t.first).Seconds()
}

// wait returns when all messages are done.
func (t *tally) wait(ctx context.Context) error {
	t.mu.Lock()
	done := t.done
	t.mu.Unlock()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		t.mu.Lock()
		defer t.mu.Unlock()
		return fmt.Errorf("%d of %d messages are done: %w", t.count, t.want, context.Cause(ctx))
	}
}

// while runs a system while fn runs. The system must run until its context ends.
func while(ctx context.Context, system func(context.Context) error, fn func(context.Context) error) error {
	ctx, stop := context.WithTimeoutCause(ctx, patience, errors.New("out of patience"))
	defer stop()
	ended := make(chan error, 1)
	running, end := context.WithCancel(ctx)
	go func() {
		ended <- system(running)
		stop() // a system that has ended by itself will not finish the messages
	}()
	err := fn(ctx)
	end()
	return errors.Join(err, <-ended)
}

// drain returns how many messages of a backlog per second are done.
func drain(ctx context.Context, t *tally, system func(context.Context) error) (perSecond float64, err error) {
	if err := while(ctx, system, t.wait); err != nil {
		return 0, err
	}
	return t.perSecond(), nil
}
