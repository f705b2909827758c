package backoff_test

import (
	"testing"
	"time"

	"github.com/txonce/txonce/internal/backoff"
)

// A simulation replaces the source of all jitter, and gives it back.
func TestReplaceIsTheOnlySourceOfJitter(t *testing.T) {
	restore := backoff.Replace(func(n time.Duration) time.Duration { return n - 1 })
	for range 10 {
		if got := backoff.FullJitter(time.Second, time.Minute)(3); got != 4*time.Second {
			t.Errorf("FullJitter is %v", got)
		}
		if got := backoff.Jitter(time.Second); got != time.Second {
			t.Errorf("Jitter is %v", got)
		}
		if got := backoff.Draw(5); got != 4 {
			t.Errorf("Draw is %v", got)
		}
	}
	restore()
	seen := map[time.Duration]bool{}
	for range 100 {
		seen[backoff.Draw(time.Hour)] = true
	}
	if len(seen) < 90 {
		t.Errorf("%d different durations of 100 after restore", len(seen))
	}
}
