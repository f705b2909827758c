package pgxstore

import (
	"slices"
	"testing"
)

// A NOTIFY is about all shards if one of its commits is.
func TestOutboxNotifierTakesShards(t *testing.T) {
	var n notifier
	n.add([]int16{3})
	n.add([]int16{5, 3})
	if got := n.take(); len(got) != 2 || !slices.Contains(got, 3) || !slices.Contains(got, 5) {
		t.Errorf("shards %v, want 3 and 5", got)
	}
	n.add([]int16{3})
	n.add(nil)
	n.add([]int16{4})
	if got := n.take(); got != nil {
		t.Errorf("shards %v, want all", got)
	}
	n.add([]int16{6})
	if got := n.take(); !slices.Equal(got, []int16{6}) {
		t.Errorf("shards %v, want 6", got)
	}
}
