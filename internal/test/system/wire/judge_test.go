package wire

import (
	"strings"
	"testing"

	"github.com/txonce/txonce/internal/test/proof"
	"github.com/txonce/txonce/internal/test/wireproxy"
)

// twoOrders is a case, and what a database and a broker hold of it when all is well.
func twoOrders() (*result, found) {
	r := &result{n: 7, ordered: true, orders: []*order{
		{body: body{ID: "c7-0", Out: "t7"}}, {body: body{ID: "c7-1", Out: "t7"}}, {body: body{ID: "c7-2", Fails: -1}},
	}}
	f := newFound(map[string]int64{"c7-0 1": 1, "c7-1 2": 2, "last 5": 3})
	f.effects = map[string][]string{"c7-0": {"1"}, "c7-1": {"2"}}
	f.claims = map[string]int{"c7-0": 1, "c7-1": 1}
	f.letters = map[string]int{"c7-2": 1}
	return r, f
}

func TestJudge(t *testing.T) {
	for _, test := range []struct {
		name  string
		spoil func(*result, *found)
		want  string // empty: nothing is wrong
	}{
		{"good", func(*result, *found) {}, ""},
		{"effect lost", func(_ *result, f *found) { delete(f.effects, "c7-0") }, "c7-0 (fails 0, twin false): 0 effects, 1 claims"},
		{"effect doubled", func(_ *result, f *found) { f.effects["c7-1"] = []string{"2", "3"} }, "c7-1 (fails 0, twin false): 2 effects"},
		{"claim lost", func(_ *result, f *found) { delete(f.claims, "c7-0") }, "c7-0 (fails 0, twin false): 1 effects, 0 claims"},
		{"letter lost", func(_ *result, f *found) { delete(f.letters, "c7-2") }, "c7-2 (fails -1, twin false): 0 effects, 0 claims, 0 letters"},
		{"letter of a good message", func(_ *result, f *found) { f.letters["c7-0"] = 1 }, "c7-0 (fails 0, twin false): 1 effects, 1 claims, 1 letters"},
		{"not published", func(_ *result, f *found) { delete(f.published["c7"], "c7-1 2") }, "the outbox message of run 2 was not published"},
		{"published, rolled back", func(_ *result, f *found) { f.published["c7"]["c7-1 9"] = 9 }, `published, but not committed: "c7-1 9"`},
		{"published without order", func(_ *result, f *found) { f.published["c7"]["c7-2 9"] = 9 }, `published, but not committed: "c7-2 9"`},
		{"order", func(_ *result, f *found) { f.published["c7"]["c7-0 1"] = 9 }, "c7-1 was first published at 2, and c7-0"},
		{"no order wanted", func(r *result, f *found) { f.published["c7"]["c7-0 1"], r.ordered = 9, false }, ""},
		{"left", func(_ *result, f *found) { f.outbox["t7"] = 2 }, "2 outbox messages are left"},
	} {
		t.Run(test.name, func(t *testing.T) {
			r, f := twoOrders()
			test.spoil(r, &f)
			wanted(t, judge(r, f), test.want)
		})
	}
}

func TestStrays(t *testing.T) {
	for _, test := range []struct {
		name  string
		spoil func(*found)
		want  string
	}{
		{"none", func(*found) {}, ""},
		{"effect", func(f *found) { f.effects["c8-0"] = []string{"1"} }, "an effect of c8-0"},
		{"claim", func(f *found) { f.claims["c7-3"] = 1 }, "a claim of c7-3"},
		{"letter", func(f *found) { f.letters["x"] = 1 }, "a dead letter of x"},
		{"published", func(f *found) { f.published["c8"] = map[string]int64{"c8-0 1": 1} }, "published in the name of c8"},
		{"outbox", func(f *found) { f.outbox["t8"] = 1 }, "outbox messages of t8"},
	} {
		t.Run(test.name, func(t *testing.T) {
			r, f := twoOrders()
			test.spoil(&f)
			wanted(t, strays([]*result{r}, f), test.want)
		})
	}
}

// wanted checks that want is in the first thing that is wrong.
func wanted(t *testing.T, bad []string, want string) {
	t.Helper()
	switch {
	case want == "" && len(bad) > 0, want != "" && (len(bad) == 0 || !strings.Contains(bad[0], want)):
		t.Errorf("%q, want %q", bad, want)
	}
}

// A fault counts when the proxy has carried it out, and at a relay that has published a message of the case.
func TestFaults(t *testing.T) {
	shots := func(done ...bool) *shot {
		var first *shot
		for i := len(done) - 1; i >= 0; i-- {
			s := &shot{cell: cell{kind: wireproxy.Stall}, fired: "a frame", next: first}
			s.done.Store(done[i])
			first = s
		}
		return first
	}
	for _, test := range []struct {
		name string
		r    *result
		want int
	}{
		{"carried out", &result{shot: shots(true)}, 1},
		{"not carried out", &result{shot: shots(false)}, 0},
		{"only the second", &result{shot: shots(false, true)}, 1},
		{"both", &result{shot: shots(true, true)}, 2},
		{"never reached", &result{shot: &shot{}}, 0},
		{"a relay that publishes", &result{shot: shots(true), relay: true}, 1},
		{"a relay that does not", &result{shot: shots(true), relay: true, idle: true}, 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got := len(test.r.faults()); got != test.want {
				t.Errorf("%d faults, want %d", got, test.want)
			}
		})
	}
}

// A run that is published must reach each cell, a full one those that say how often, and another one any.
func TestCheck(t *testing.T) {
	const begin, commit = "BEGIN, stall: 0 faults, want 1", "COMMIT, stall: 3 faults, want 20"
	for _, test := range []struct {
		name            string
		faults          int // of COMMIT
		full, published bool
		fails           []string
	}{
		{"published", 3, true, true, []string{begin, commit}},
		{"published, with enough COMMITs", 20, true, true, []string{begin}},
		{"full", 3, true, false, []string{commit}},
		{"full, with enough COMMITs", 20, true, false, nil},
		{"short", 3, false, false, nil},
		{"nothing", 0, false, false, []string{"the run has tried nothing"}},
		{"nothing, and full", 0, true, false, []string{"the run has tried nothing", "COMMIT, stall: 0 faults"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			r := proof.Run{Cases: 1}
			r.Cell("BEGIN", "stall")
			c := r.Cell("COMMIT", "stall")
			c.Least, c.Faults = 20, test.faults
			err := check(r, test.full, test.published)
			if (err == nil) != (len(test.fails) == 0) {
				t.Fatalf("error %v, want %q", err, test.fails)
			}
			for _, text := range test.fails {
				if !strings.Contains(err.Error(), text) {
					t.Errorf("error %v, want %q", err, text)
				}
			}
			if c := r.Cells[1]; c.Least != 20 {
				t.Errorf("it has changed the run: %+v", c)
			}
		})
	}
}
