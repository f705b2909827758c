package outbox_test

import (
	"fmt"
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/txonce/txonce/outbox"
)

// river once had, after 310 errors, its next retry 292 years in the past.
func TestOutboxFullJitterStaysWithinItsBounds(t *testing.T) {
	durations := rapid.OneOf(rapid.Int64(), rapid.Int64Range(0, int64(time.Hour)), rapid.SampledFrom([]int64{0, 1, math.MaxInt64, math.MinInt64}))
	attempts := rapid.OneOf(rapid.Int(), rapid.IntRange(-2, 100), rapid.SampledFrom([]int{0, 1, 310, math.MaxInt, math.MinInt}))
	rapid.Check(t, func(t *rapid.T) {
		base, limit := time.Duration(durations.Draw(t, "base")), time.Duration(durations.Draw(t, "limit"))
		attempt := attempts.Draw(t, "attempt")
		got := outbox.FullJitter(base, limit)(attempt)
		if got < 0 || got > max(limit, 0) {
			t.Fatalf("FullJitter(%v, %v)(%d) = %v", base, limit, attempt, got)
		}
	})
}

func TestOutboxFullJitterGrowsAndSpreads(t *testing.T) {
	backoff := outbox.FullJitter(time.Second, time.Minute)
	for attempt, ceiling := range []time.Duration{time.Second, time.Second, 2 * time.Second, 4 * time.Second, 8 * time.Second, 16 * time.Second, 32 * time.Second, time.Minute, time.Minute} {
		low, high := 0, 0
		for range 1000 {
			switch d := backoff(attempt); {
			case d > ceiling:
				t.Fatalf("after attempt %d: %v, more than %v", attempt, d, ceiling)
			case d < ceiling/10:
				low++
			case d > ceiling*9/10:
				high++
			}
		}
		if low == 0 || high == 0 {
			t.Errorf("after attempt %d: %d of 1000 in the lowest tenth, %d in the highest", attempt, low, high)
		}
	}
}

func ExampleFullJitter() {
	backoff := outbox.FullJitter(100*time.Millisecond, time.Minute)
	fmt.Println(backoff(1) <= 100*time.Millisecond, backoff(3) <= 400*time.Millisecond, backoff(1000) <= time.Minute)
	// Output: true true true
}
