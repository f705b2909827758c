package kafka_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/txonce/txonce/adapters/kafka"
	"github.com/txonce/txonce/consumer"
)

// TestQueue picks and settles batches with any answers, several at a time and in any order, and looks at what its promises say:
// order within a key, no key in two batches, nothing lost, nothing before its time, limits kept, and no standstill.
func TestQueue(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var (
			q        kafka.Queue
			now      = time.Unix(1e9, 0)
			added    int
			size     int // of all unfinished
			finished = map[string]bool{}
			byKey    = map[string][]string{} // unfinished positions, in order
			working  [][]*kafka.Delivery
		)
		t.Repeat(map[string]func(*rapid.T){
			"add": func(t *rapid.T) {
				added++
				msg := &consumer.Message{
					Key:      rapid.SampledFrom([]string{"", "a", "b", "c"}).Draw(t, "key"),
					Position: fmt.Sprint(added),
				}
				n := rapid.IntRange(0, 10).Draw(t, "size")
				q.Add(kafka.NewDelivery(msg, n))
				size += n
				byKey[msg.Key] = append(byKey[msg.Key], msg.Position)
			},
			"pass time": func(t *rapid.T) {
				now = now.Add(time.Duration(rapid.IntRange(1, 2000).Draw(t, "ms")) * time.Millisecond)
			},
			"begin": func(t *rapid.T) {
				n, bytes := rapid.IntRange(1, 5).Draw(t, "n"), rapid.IntRange(0, 20).Draw(t, "bytes")
				batch, wake := q.Pick(now, n, bytes)
				if len(batch) == 0 {
					if len(q.Waiting()) > 0 && len(working) == 0 && !wake.After(now) {
						t.Fatalf("%d messages wait, none is due, and nothing says when one will be", len(q.Waiting()))
					}
					return
				}
				if len(batch) > n {
					t.Fatalf("%d messages in a batch of at most %d", len(batch), n)
				}
				for _, other := range working {
					for _, d := range other {
						for _, b := range batch {
							if b == d || b.Message().Key != "" && b.Message().Key == d.Message().Key {
								t.Fatalf("message %s is handled beside %s, both of key %q", b.Message().Position, d.Message().Position, d.Message().Key)
							}
						}
					}
				}
				working = append(working, batch)
				sum := 0
				seen := map[string]int{}
				for i, d := range batch {
					msg := d.Message()
					sum += d.Size()
					if i > 0 && sum > bytes {
						t.Fatalf("batch of %d messages has %d bytes, more than %d", len(batch), sum, bytes)
					}
					if d.NotBefore().After(now) {
						t.Fatalf("message %s was delivered before its time", msg.Position)
					}
					if want := byKey[msg.Key][seen[msg.Key]]; msg.Key != "" && want != msg.Position {
						t.Fatalf("key %q: message %s was delivered before %s", msg.Key, msg.Position, want)
					}
					seen[msg.Key]++
				}
			},
			"end": func(t *rapid.T) {
				if len(working) == 0 {
					t.Skip("nothing is in work")
				}
				i := rapid.IntRange(0, len(working)-1).Draw(t, "which")
				batch := working[i]
				working = slices.Delete(working, i, i+1)
				for _, d := range batch {
					msg := d.Message()
					if finished[msg.Position] {
						t.Fatalf("message %s was delivered after it was finished", msg.Position)
					}
					if rapid.Bool().Draw(t, "finishes") {
						d.Finish()
						finished[msg.Position] = true
						size -= d.Size()
						byKey[msg.Key] = slices.DeleteFunc(byKey[msg.Key], func(p string) bool { return p == msg.Position })
					} else {
						d.Again(now, time.Duration(rapid.IntRange(0, 500).Draw(t, "after"))*time.Millisecond, false)
					}
				}
				q.Settle(batch)
			},
			"": func(t *rapid.T) {
				if n := len(q.Waiting()); n != added-len(finished) {
					t.Fatalf("%d messages wait, %d are unfinished", n, added-len(finished))
				}
				if q.Bytes() != size {
					t.Fatalf("%d bytes are counted, %d wait", q.Bytes(), size)
				}
			},
		})
	})
}

// TestAgainDoesNotSpin asks for a message to be delivered again at once, time after time.
func TestAgainDoesNotSpin(t *testing.T) {
	now := time.Unix(1e9, 0)
	d := kafka.NewDelivery(&consumer.Message{}, 1)
	var waits []time.Duration
	for range 12 {
		d.Again(now, 0, false)
		waits = append(waits, d.NotBefore().Sub(now))
	}
	if waits[0] != 0 || waits[1] == 0 || waits[11] != time.Second || !slices.IsSorted(waits) {
		t.Errorf("a Processor that says 'at once' each time is obeyed after %v; want 0 first, then longer, up to 1s", waits)
	}
	d.Again(now, 0, true)
	if d.NotBefore() != now {
		t.Error("a message that waits for an earlier one of its key waits longer than that")
	}
}
