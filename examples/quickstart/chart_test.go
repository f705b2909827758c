package main

import (
	"encoding/xml"
	"errors"
	"io"
	"os"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestChart(t *testing.T) {
	var samples []sample
	for i := range 41 { // four seconds, 1,000 a second, with kills after one and three seconds
		samples = append(samples, sample{time.Duration(i) * 100 * time.Millisecond, int64(100 * i), i/10 - i/20})
	}
	bars, kills := bars(samples)
	if len(bars) != 8 || slices.ContainsFunc(bars, func(b float64) bool { return b < 999 || b > 1001 }) {
		t.Errorf("bars %v, want 8 of 1,000", bars)
	}
	if !slices.Equal(kills, []time.Duration{time.Second, 3 * time.Second}) {
		t.Errorf("kills %v", kills)
	}
	path := t.TempDir() + "/chart.svg"
	if err := writeChart(path, "a run", samples); err != nil {
		t.Fatal(err)
	}
	svg, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for d := xml.NewDecoder(strings.NewReader(string(svg))); ; {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatalf("%v\n%s", err, svg)
		}
	}
	for text, n := range map[string]int{`class="bar"`: 8, `class="kill"`: 2, ">a run<": 1} {
		if got := strings.Count(string(svg), text); got != n {
			t.Errorf("%s occurs %d times, want %d", text, got, n)
		}
	}
	if err := writeChart(path, "a run", samples[:3]); err == nil {
		t.Error("a chart of a moment")
	}
}
