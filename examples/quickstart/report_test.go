package main

import (
	"bytes"
	"strings"
	"testing"
	"time"
)

// TestVerdict fails a run for each kind of fault.
func TestVerdict(t *testing.T) {
	p := newPlan(1000, 1)
	b := &kafkaBroker{ends: make([]int64, partitions)}
	b.ends[3] = 10
	right := findings{Effects: 1000 - p.poison - p.reused, PoisonParked: p.poison, MismatchesParked: p.reused}
	for _, tt := range []struct {
		name  string
		wrong func(*outcome, *findings)
		says  string
	}{
		{"nothing is wrong", nil, "lost 0, doubled 0; events missing 0, out of order 0, with a foreign ID 0"},
		{
			"not complete", func(o *outcome, _ *findings) { o.complete = false },
			"partition 3: 0 of 10 deliveries are finished",
		},
		{"lost", func(_ *outcome, f *findings) { f.Lost = 1 }, "lost 1, doubled 0"},
		{"doubled", func(_ *outcome, f *findings) { f.Doubled = 2 }, "lost 0, doubled 2"},
		{"poison not parked", func(_ *outcome, f *findings) { f.PoisonParked-- }, "of 2 planted"},
		{"mismatch not parked", func(_ *outcome, f *findings) { f.MismatchesParked-- }, "of 2 planted"},
		{"unprovable", func(_ *outcome, f *findings) { f.UnprovableParked++ }, "of 0 planted"},
		{"an event is missing", func(_ *outcome, f *findings) { f.EventsMissing = 1 }, "events missing 1"},
		{"an event is out of order", func(_ *outcome, f *findings) { f.EventsOutOfOrder = 3 }, "out of order 3"},
		{"an event has a foreign ID", func(_ *outcome, f *findings) { f.EventsWithForeignID = 2 }, "a foreign ID 2"},
		{
			"the auditor finds a lost order", func(_ *outcome, f *findings) { f.Auditor.Lost = 1 },
			"claims compared: 1 lost",
		},
		{"the auditor finds a doubled order", func(_ *outcome, f *findings) { f.Auditor.Doubled = 1 }, "1 doubled"},
		{
			"the auditor finds a lost event", func(_ *outcome, f *findings) { f.Auditor.EventsLost = 1 },
			"1 without event",
		},
		{
			"the auditor finds something meanwhile", func(_ *outcome, f *findings) { f.Auditor.False = 1 },
			"with 1 findings",
		},
		{
			"a problem", func(_ *outcome, f *findings) { f.Problems = []string{"somebody was charged 7 times"} },
			"7 times",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			out, f := outcome{complete: true, took: time.Second, progress: newProgress(len(p.deliveries),
				time.Now())}, right
			if tt.wrong != nil {
				tt.wrong(&out, &f)
			}
			var text bytes.Buffer
			ok := conclude(options{json: true}, p, out, f, newFigures(p, out, f), b, newTerminal(&text))
			if ok != (tt.wrong == nil) || !strings.Contains(text.String(), tt.says) {
				t.Errorf("verdict %v:\n%s", ok, &text)
			}
		})
	}
}

// A live line is rewritten on a terminal and printed rarely elsewhere.
func TestTerminal(t *testing.T) {
	var text bytes.Buffer
	s := &terminal{out: &text, rewrites: true}
	s.live("1 %")
	s.live("2 %")
	s.print("a line")
	s.clear()
	if got, want := text.String(), "\r\x1b[K1 %\r\x1b[K2 %\r\x1b[Ka line\n"; got != want {
		t.Errorf("on a terminal: %q, want %q", got, want)
	}

	text.Reset()
	s = newTerminal(&text)
	s.last = time.Now().Add(time.Hour) // must not depend on how long this test takes
	s.live("too soon")
	s.last = time.Time{}
	s.live("50 %")
	if s.last.IsZero() {
		t.Error("a line that was printed is not the last one")
	}
	s.last = time.Now().Add(time.Hour)
	s.live("too soon again")
	s.print("a line")
	if got, want := text.String(), "50 %\na line\n"; got != want {
		t.Errorf("elsewhere: %q, want %q", got, want)
	}
}
