package backoff_test

import (
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/txonce/txonce/internal/backoff"
)

// After 310 errors, river once had its next retry 292 years in the past.
func TestJitterStaysWithinItsBounds(t *testing.T) {
	durations := rapid.OneOf(rapid.Int64(), rapid.Int64Range(0, int64(time.Hour)),
		rapid.SampledFrom([]int64{0, 1, math.MaxInt64, math.MinInt64}))
	attempts := rapid.OneOf(rapid.Int(), rapid.IntRange(-2, 100),
		rapid.SampledFrom([]int{0, 1, 310, math.MaxInt, math.MinInt}))
	rapid.Check(t, func(t *rapid.T) {
		base, limit := time.Duration(durations.Draw(t, "base")), time.Duration(durations.Draw(t, "limit"))
		attempt := attempts.Draw(t, "attempt")
		if got := backoff.FullJitter(base, limit)(attempt); got < 0 || got > max(limit, 0) {
			t.Fatalf("FullJitter(%v, %v)(%d) = %v", base, limit, attempt, got)
		}
		if got := backoff.HalfJitter(base, limit, attempt); got < 0 || got > max(limit, 0) {
			t.Fatalf("HalfJitter(%v, %v, %d) = %v", base, limit, attempt, got)
		}
	})
}

func TestJitterGrowsAndSpreads(t *testing.T) {
	full := backoff.FullJitter(time.Second, time.Minute)
	half := func(failures int) time.Duration { return backoff.HalfJitter(time.Second, time.Minute, failures) }
	for _, tt := range []struct {
		name   string
		delay  func(int) time.Duration
		lowest float64 // share of the ceiling
	}{{"full", full, 0}, {"half", half, 0.5}} {
		for attempt, ceiling := range []time.Duration{
			time.Second, time.Second, 2 * time.Second, 4 * time.Second,
			8 * time.Second, 16 * time.Second, 32 * time.Second, time.Minute, time.Minute,
		} {
			low, high := 0, 0
			for range 1000 {
				switch share := float64(tt.delay(attempt)) / float64(ceiling); {
				case share > 1 || share < tt.lowest:
					t.Fatalf("%s jitter after attempt %d is %.2f of %v", tt.name, attempt, share, ceiling)
				case share < tt.lowest+.1:
					low++
				case share > .9:
					high++
				}
			}
			if low == 0 || high == 0 {
				t.Errorf("%s jitter after attempt %d: %d of 1000 in the lowest tenth, %d in the highest", tt.name,
					attempt, low, high)
			}
		}
	}
}
