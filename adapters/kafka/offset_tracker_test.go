package kafka_test

import (
	"testing"

	"github.com/IBM/sarama"
	"pgregory.net/rapid"

	"github.com/txonce/txonce/adapters/kafka"
)

// TestOffsetTracker finishes messages in any order, in partitions whose offsets have gaps, and compares the mark with
// the longest finished prefix of the delivered messages.
func TestOffsetTracker(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var (
			tracker   kafka.OffsetTracker
			finish    []func() *sarama.ConsumerMessage // of message i
			offsets   []int64
			done      []bool
			committed = int64(-1)
			next      = rapid.Int64Range(0, 1e12).Draw(t, "first")
			gap       = rapid.SampledFrom([]int64{1, 2, 100}).Draw(t, "gap") // 2: odd offsets only
		)
		prefix := func() int64 {
			last := int64(-1)
			for i := 0; i < len(done) && done[i]; i++ {
				last = offsets[i]
			}
			return last
		}
		t.Repeat(map[string]func(*rapid.T){
			"deliver": func(t *rapid.T) {
				raw := &sarama.ConsumerMessage{Offset: next}
				m := tracker.Deliver(raw)
				finish = append(finish, func() *sarama.ConsumerMessage { return tracker.Finish(m) })
				offsets, done = append(offsets, next), append(done, false)
				next += gap * rapid.Int64Range(1, 3).Draw(t, "step")
			},
			"finish": func(t *rapid.T) {
				var open []int
				for i := range done {
					if !done[i] {
						open = append(open, i)
					}
				}
				if len(open) == 0 {
					t.Skip("all are finished")
				}
				i := rapid.SampledFrom(open).Draw(t, "which")
				done[i] = true
				low := finish[i]()
				switch want := prefix(); {
				case low == nil && want != committed:
					t.Fatalf("finished %d: the mark stays at %d, everything up to %d is finished", offsets[i],
						committed, want)
				case low != nil && low.Offset != want:
					t.Fatalf("finished %d: marked %d, but only up to %d everything is finished", offsets[i],
						low.Offset, want)
				case low != nil:
					committed = low.Offset
				}
			},
			"": func(t *rapid.T) {
				open := 0
				for i := range done {
					if !done[i] {
						open++
					}
				}
				if n := tracker.Len(); n > 2*open {
					t.Fatalf("%d unfinished messages take %d entries: finished neighbours do not count as one", open, n)
				}
			},
		})
	})
}
