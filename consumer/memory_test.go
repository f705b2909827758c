package consumer_test

import (
	"testing"

	"github.com/txonce/txonce/consumer"
)

// Failed messages are forgotten when there are too many, and then get some more attempts. A message in doubt would
// become a duplicate, so it is never forgotten.
func TestADoubtIsNeverForgotten(t *testing.T) {
	for _, tc := range []struct{ failed, want int }{{5, 6}, {25_000, 10_000}} {
		pasts, doubtful := consumer.MemoryOf(tc.failed)
		if !doubtful || pasts != tc.want {
			t.Errorf("after %d failed messages: %d are remembered, the doubt is: %v", tc.failed, pasts, doubtful)
		}
	}
}
