// Package arrivals checks the messages that a relay or a Publisher has sent to a real topic or queue.
package arrivals

import (
	"context"
	"fmt"
	"testing"

	"github.com/txonce/txonce/outbox"
)

// Order checks the order within each key. The payload of a key's n-th message is the number n in decimal, from 0 on.
type Order struct {
	Next     map[string]int // by key: the number of the message that is due
	Messages int            // without repeats
	Repeats  int
}

// Add adds the message that arrived next. It fails the test if an earlier message of the key is missing.
func (o *Order) Add(t testing.TB, key string, payload []byte) {
	t.Helper()
	var n int
	if _, err := fmt.Sscan(string(payload), &n); err != nil {
		t.Fatal(err)
	}
	if o.Next == nil {
		o.Next = map[string]int{}
	}
	switch {
	case n == o.Next[key]:
		o.Next[key]++
		o.Messages++
	case n < o.Next[key]:
		o.Repeats++
	default:
		t.Errorf("key %q: message %d arrived before message %d", key, n, o.Next[key])
	}
}

// Drained returns nil when an outbox holds nothing more.
func Drained(ctx context.Context, queue outbox.Operations) error {
	stats, err := queue.Stats(ctx)
	if err == nil && stats.Pending+stats.Parked+stats.Delayed+stats.Waiting != 0 {
		err = fmt.Errorf("not all messages were sent: %+v", stats)
	}
	return err
}
