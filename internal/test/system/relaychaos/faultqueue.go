//go:build unix

package main

import (
	"sync"
	"time"
)

// faultQueue holds the faults that are not applied yet, in the order of their due times.
type faultQueue struct {
	start time.Time

	mu     sync.Mutex
	faults []fault       // without those that a keeper is applying
	left   int           // number of faults that are not applied yet
	over   chan struct{} // closed when left is 0
}

func newFaultQueue(faults []fault, start time.Time) *faultQueue {
	d := &faultQueue{start: start, faults: faults, left: len(faults), over: make(chan struct{})}
	if len(faults) == 0 {
		close(d.over)
	}
	return d
}

// draw takes the next fault if it is due.
func (d *faultQueue) draw(now time.Time) (fault, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.faults) == 0 || now.Before(d.start.Add(d.faults[0].due)) {
		return fault{}, false
	}
	f := d.faults[0]
	d.faults = d.faults[1:]
	return f, true
}

// back returns a fault that could not be applied.
func (d *faultQueue) back(f fault) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.faults = append([]fault{f}, d.faults...)
}

// done records that a fault was applied.
func (d *faultQueue) done() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.left--; d.left == 0 {
		close(d.over)
	}
}

// empty reports whether every fault was applied.
func (d *faultQueue) empty() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.left == 0
}
