package main

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"time"
)

func TestNumber(t *testing.T) {
	for v, want := range map[float64]string{
		0: ".00", -.2: "-.20", .714: ".71", 1.056: "1.06", 3.14: "3.1", 12.34: "12.3", 21.4: "21", 999: "999",
		1896: "1,900", 38_049: "38,000", 10_000_000: "10,000,000",
	} {
		if got := number(v); got != want {
			t.Errorf("number(%v) = %s, want %s", v, got, want)
		}
	}
}

// The ratio is the median of the rounds' ratios, not the ratio of medians.
func TestRatiosAreOfEachRound(t *testing.T) {
	r := &report{}
	ways := []way{{name: "hand"}, {name: "ours", base: "hand"}}
	r.table("batches", "messages/s").add("1 connection", ways, series{"hand": {100, 10, 1000}, "ours": {200, 40, 1000}})
	c := r.cell("batches", "1 connection", "ours")
	if c.Median != 200 || c.Ratio.Median != 2 || c.Ratio.Low != 1 || c.Ratio.High != 4 {
		t.Errorf("got %+v, ratio %+v", c.summary, *c.Ratio)
	}
	if got := c.String("messages/s"); got != "2.00 x (1.00-4.0)" {
		t.Errorf("the cell is %q", got)
	}
}

func TestGates(t *testing.T) {
	r := &report{}
	r.table("t", "").add("c", []way{{name: "base"}, {name: "way"}}, series{"base": {10, 10}, "way": {90, 90}})
	for _, test := range []struct {
		name   string
		gate   gate
		status string
		fails  bool
	}{
		{"met", gate{way: "way", base: "base", least: 9}, "met", false},
		{"within", gate{way: "way", base: "base", least: 10}, "missed, within 15 %", false},
		{"missed", gate{way: "way", base: "base", least: 11}, "MISSED", true},
		{"known", gate{way: "way", base: "base", least: 11, known: "9", worst: 9}, "missed, as known", false},
		{"known, and far worse", gate{way: "way", base: "base", least: 11, known: "9.5", worst: 9.1}, "MISSED", true},
		{"mended", gate{way: "way", base: "base", least: 9, known: "8", worst: 6}, "met, was known as missed", false},
		{"at most", gate{way: "way", most: 90}, "met", false},
		{"at most, within", gate{way: "way", most: 80}, "missed, within 15 %", false},
		{"at most, missed", gate{way: "way", most: 75}, "MISSED", true},
		{"at most, known", gate{way: "way", most: 50, known: "85", worst: 90}, "missed, as known", false},
		{"at most, known, and far worse", gate{way: "way", most: 50, known: "85", worst: 89}, "MISSED", true},
		{
			"at most, known relative to base",
			gate{way: "way", most: 50, known: "85", worst: 9, worstBase: "base"},
			"missed, as known", false,
		},
		{"at most, known, far worse relative to base", gate{way: "way", most: 50, known: "85", worst: 8.9, worstBase: "base"}, "MISSED", true},
		{"known relative to a way that was not measured", gate{way: "way", most: 50, known: "85", worst: 9, worstBase: "other"}, "MISSED", true},
		{"not measured", gate{way: "other", least: 1}, "not measured", false},
		{"base not measured", gate{way: "way", base: "other", least: 1}, "not measured", false},
	} {
		t.Run(test.name, func(t *testing.T) {
			test.gate.table, test.gate.column = "t", "c"
			r.Gates = nil
			r.judge([]gate{test.gate})
			if got := r.Gates[0].status(); got != test.status {
				t.Errorf("%s, want %s", got, test.status)
			}
			if fails := len(r.failed()) > 0; fails != test.fails {
				t.Errorf("the run fails: %v", fails)
			}
		})
	}
}

func TestFiguresOfAKnownMiss(t *testing.T) {
	r := &report{}
	r.table("t", "").add("c", []way{{name: "base"}, {name: "way"}}, series{"base": {10, 10}, "way": {90, 90}})
	r.judge([]gate{{table: "t", column: "c", way: "way", most: 50, known: "85", worst: 8, worstBase: "base"}})
	if got, want := r.Gates[0].figures(), "90, want at most 50, fails above 8.0 x base, was 9.0 x"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// A target that is known to be missed has a figure that makes a run fail all the same: one further off than slack.
func TestKnownTargetsHaveAWorstFigure(t *testing.T) {
	for _, g := range gates {
		name := g.target + " " + g.way + ", " + g.table + ", " + g.column
		if (g.least > 0) == (g.most > 0) {
			t.Errorf("%s: want either least or most", name)
		}
		if (g.known == "") != (g.worst == 0) || g.worst == 0 && g.worstBase != "" {
			t.Errorf("%s: want known and worst, or neither", name)
		}
		if g.known == "" || g.worstBase != "" {
			continue // the other base is in another unit
		}
		if g.least > 0 && g.worst > g.least*(1-slack) || g.most > 0 && g.worst < g.most*(1+slack) {
			t.Errorf("%s: worst is %s: a target that is not known may be missed as far", name, number(g.worst))
		}
	}
}

func TestChoose(t *testing.T) {
	for _, test := range []struct {
		name, only string
		short      bool
		want       []string // the first ones
		n          int
	}{
		{"everything", "", false, []string{"singles", "batches"}, len(sections)},
		{"a short run", "", true, []string{"singles", "batches"}, len(sections) - 5},
		{"some", "growth,batches", false, []string{"batches", "growth"}, 2},
		{"a long one in a short run", "growth", true, []string{"growth"}, 1},
	} {
		t.Run(test.name, func(t *testing.T) {
			chosen, err := choose(test.only, test.short)
			if err != nil || len(chosen) != test.n {
				t.Fatalf("%d sections, %v; want %d", len(chosen), err, test.n)
			}
			for i, want := range test.want {
				if chosen[i].name != want {
					t.Errorf("section %d is %s, want %s", i, chosen[i].name, want)
				}
			}
		})
	}
	_, err := choose("singles,single", false)
	if err == nil || !strings.Contains(err.Error(), "-only single:") {
		t.Fatalf("an unknown section: %v", err)
	}
	for _, s := range sections {
		if !strings.Contains(err.Error(), s.name) {
			t.Errorf("%v: does not name %s", err, s.name)
		}
	}
}

// A table replaces the one of the last run, and what this run has not measured stays.
func TestFill(t *testing.T) {
	r := &report{Whole: true}
	r.table("singles", "messages/s").put("1 connection", "bare", 1900)
	r.Gates = []verdict{}
	page := "a\n<!-- bench machine -->\n<!-- /bench -->\n<!-- bench singles -->\nold\n<!-- /bench -->\nb\n<!-- bench idle -->\nkept\n<!-- /bench -->\n<!-- bench gates -->\n<!-- /bench -->\n"
	filled, err := r.fill([]byte(page))
	got := string(filled)
	if err != nil || !strings.Contains(got, "| bare | 1,900/s |\n") || strings.Contains(got, "old") ||
		!strings.Contains(got, "\nkept\n") || !strings.Contains(got, "\nb\n") {
		t.Errorf("%v\n%s", err, got)
	}
	if again, err := r.fill(filled); err != nil || string(again) != got {
		t.Errorf("a second time: %v\n%s", err, again)
	}
	if !strings.Contains(got, "| wanted |") || !strings.Contains(got, "Last run") {
		t.Errorf("a whole run has not replaced the last run and the targets:\n%s", got)
	}
	r.table("homeless", "ms")
	if _, err := r.fill([]byte(page)); err == nil || !strings.Contains(err.Error(), "homeless") {
		t.Errorf("a table without a place: %v", err)
	}
}

// A run of some sections changes only their tables: the machine and the targets are those of the last whole run.
func TestFillAfterSomeSections(t *testing.T) {
	r := &report{Gates: []verdict{{Target: "P1"}}}
	r.table("singles", "messages/s").put("1 connection", "bare", 1900)
	page := "<!-- bench machine -->\nthen\n<!-- /bench -->\n<!-- bench singles -->\nold\n<!-- /bench -->\n<!-- bench gates -->\ntargets\n<!-- /bench -->\n"
	filled, err := r.fill([]byte(page))
	got := string(filled)
	if err != nil || !strings.Contains(got, "| bare | 1,900/s |\n") || strings.Contains(got, "old") ||
		!strings.Contains(got, "\nthen\n") || !strings.Contains(got, "\ntargets\n") {
		t.Errorf("%v\n%s", err, got)
	}
}

func TestThePageHasAPlaceForEachTarget(t *testing.T) {
	page, err := os.ReadFile("../docs/performance.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, g := range gates {
		if !strings.Contains(string(page), "<!-- bench "+g.table+" -->\n") {
			t.Errorf("performance.md has no place for table %s of %s", g.table, g.target)
		}
	}
}

func TestTally(t *testing.T) {
	tally := newTally(3)
	if n := tally.add(2); n != 2 {
		t.Errorf("%d are done, want 2", n)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("out of patience"))
	if err := tally.wait(ctx); err == nil || !strings.Contains(err.Error(),
		"2 of 3 messages are done: out of patience") {
		t.Errorf("wait: %v", err)
	}
	tally.add(2) // more than expected
	if err := tally.wait(t.Context()); err != nil {
		t.Error(err)
	}
}

// A system that ends by itself ends the measurement, and its error is reported.
func TestWhile(t *testing.T) {
	broken := errors.New("broken")
	err := while(t.Context(), func(context.Context) error { return broken }, newTally(1).wait)
	if !errors.Is(err, broken) {
		t.Errorf("got %v", err)
	}
	ended := false
	err = while(t.Context(), func(ctx context.Context) error {
		<-ctx.Done()
		ended = true
		return nil
	}, func(context.Context) error { return nil })
	if err != nil || !ended {
		t.Errorf("got %v, and the system has ended: %v", err, ended)
	}
}

func TestPercentile(t *testing.T) {
	var took []time.Duration
	for i := range 101 {
		took = append(took, time.Duration(100-i)*time.Millisecond)
	}
	if p50, p99 := percentile(took, 50), percentile(took, 99); p50 != 50 || p99 != 99 {
		t.Errorf("p50 %v, p99 %v", p50, p99)
	}
}
