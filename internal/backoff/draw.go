package backoff

import (
	"math/rand/v2"
	"sync/atomic"
	"time"
)

// replaced is the function of Replace; nil: Draw is random.
var replaced atomic.Pointer[func(n time.Duration) time.Duration]

// Draw returns a random duration that is at least 0 and less than n, which must be positive. All waits of this module
// that vary get their variation from here, so that a test which replaces it can repeat a run exactly.
func Draw(n time.Duration) time.Duration {
	if draw := replaced.Load(); draw != nil {
		return (*draw)(n)
	}
	return rand.N(n)
}

// Replace makes Draw call draw in the whole program, until restore is called. It is for tests, one at a time.
func Replace(draw func(n time.Duration) time.Duration) (restore func()) {
	before := replaced.Swap(&draw)
	return func() { replaced.Store(before) }
}
