package pgxstore

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Watermarks are valid for one server since its start, and while the sequence only grows.
func TestOutboxWatermarkIsOutdated(t *testing.T) {
	for _, test := range []struct {
		name         string
		server, last int64
		want         bool
	}{
		{"nothing happened", 1, 100, false},
		{"more was enqueued", 1, 300, false},
		{"the sequence has stepped back", 1, 99, true},
		{"another server, and the sequence above the watermarks", 2, 300, true},
	} {
		var f watermark
		if f.outdated(1, 7) {
			t.Error("a new watermark is outdated")
		}
		f.move(1, 100, []string{"writer"})
		if got := f.outdated(test.server, test.last); got != test.want {
			t.Errorf("%s: outdated = %v", test.name, got)
		}
	}
}

// A poll that began before the watermarks were dropped raises none, because it may have read the old state.
func TestOutboxPollRaisesNoWatermarkOfAnotherState(t *testing.T) {
	s := &outboxSession{held: map[int]*heldShard{1: {}, 2: {}}}
	s.watermark.move(1, 100, nil)
	before := s.watermark
	lows := func() map[int]int64 { return map[int]int64{1: s.held[1].low, 2: s.held[2].low} }
	poll := func() {
		s.raise([]int16{1, 2}, []int64{0, 0}, before, scanned{first: map[int]int64{2: 50}, returned: map[int]int64{2: 0}, all: true})
	}
	poll()
	if diff := cmp.Diff(map[int]int64{1: 101, 2: 50}, lows()); diff != "" {
		t.Error(diff)
	}
	s.dropWatermarks()
	poll()
	if diff := cmp.Diff(map[int]int64{1: 0, 2: 0}, lows()); diff != "" {
		t.Error(diff)
	}
}
