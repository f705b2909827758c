//go:build unix

package main

import (
	"sync"
	"time"
)

// deck holds the faults that are still to be applied, in the order in which they are due.
type deck struct {
	start time.Time

	mu     sync.Mutex
	faults []fault       // that nobody is applying
	left   int           // that are not applied
	over   chan struct{} // closed when none is left
}

func newDeck(faults []fault, start time.Time) *deck {
	d := &deck{start: start, faults: faults, left: len(faults), over: make(chan struct{})}
	if len(faults) == 0 {
		close(d.over)
	}
	return d
}

// draw takes the next fault, if it is due.
func (d *deck) draw(now time.Time) (fault, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.faults) == 0 || now.Before(d.start.Add(d.faults[0].due)) {
		return fault{}, false
	}
	f := d.faults[0]
	d.faults = d.faults[1:]
	return f, true
}

// back gives back a fault that could not be applied.
func (d *deck) back(f fault) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.faults = append([]fault{f}, d.faults...)
}

// done says that a fault was applied.
func (d *deck) done() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.left--; d.left == 0 {
		close(d.over)
	}
}

// empty reports whether every fault was applied.
func (d *deck) empty() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.left == 0
}
