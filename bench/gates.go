package main

import (
	"cmp"
	"fmt"
)

// slack is by how much a figure may be off its target: figures of one run differ by as much.
const slack = .15

// A gate is a target that a figure must not miss by more than slack, or, if it is known to be missed, must not miss
// further than worst.
type gate struct {
	target      string // in the list of targets: P1 and so on
	table, way  string
	column      string
	base        string  // the way that the target is relative to; "": the figure itself
	least, most float64 // one of the two
	// why the target is known to be missed; such a miss is no failure unless the figure is beyond worst
	known string
	// for a known target: a smaller figure, or a larger one if the target is most, makes the run fail
	worst     float64
	worstBase string // the way that worst is relative to; "": base
}

// verdict is the result of a gate.
type verdict struct {
	Target   string  `json:"target"`
	What     string  `json:"what"`
	Want     float64 `json:"want"`
	AtMost   bool    `json:"at_most,omitempty"`
	Got      float64 `json:"got"`
	Measured bool    `json:"measured"`
	Within   bool    `json:"within"` // the gate
	Met      bool    `json:"met"`    // the target
	Known    string  `json:"known,omitempty"`
	Worst    string  `json:"worst,omitempty"`     // of a known miss: when the run fails
	WorstGot float64 `json:"worst_got,omitempty"` // what that compares, if it is relative to another way
}

func (r *report) judge(gates []gate) {
	for _, g := range gates {
		v := verdict{Target: g.target, What: g.way, Want: g.least, AtMost: g.most > 0, Known: g.known}
		if g.base != "" {
			v.What += " / " + g.base
		}
		v.What += ", " + g.table + ", " + g.column
		if v.AtMost {
			v.Want = g.most
		}
		v.Got, v.Measured = r.figure(g, g.base)
		v.Met = g.reaches(v.Got, v.Want)
		if g.known == "" {
			v.Within = g.reaches(v.Got, g.least*(1-slack)+g.most*(1+slack))
		} else {
			got, measured := r.figure(g, cmp.Or(g.worstBase, g.base))
			v.Within, v.Worst = v.Met || measured && g.reaches(got, g.worst), g.fails()
			if g.worstBase != "" {
				v.WorstGot = got
			}
		}
		r.Gates = append(r.Gates, v)
	}
}

// figure returns the median of the gate's way, relative to base in each round unless base is "".
func (r *report) figure(g gate, base string) (median float64, measured bool) {
	c := r.cell(g.table, g.column, g.way)
	if c == nil || base == "" {
		if c != nil {
			median = c.Median
		}
		return median, c != nil
	}
	b := r.cell(g.table, g.column, base)
	if b == nil || len(b.Rounds) != len(c.Rounds) {
		return c.Median, false
	}
	return summarize(series{"": c.Rounds, "base": b.Rounds}.ratios("", "base")).Median, true
}

func (g gate) reaches(got, bound float64) bool {
	if g.most > 0 {
		return got <= bound
	}
	return got >= bound
}

// fails says when a target that is known to be missed makes the run fail.
func (g gate) fails() string {
	text := "fails below " + number(g.worst)
	if g.most > 0 {
		text = "fails above " + number(g.worst)
	}
	if g.worstBase != "" {
		text += " x " + g.worstBase
	}
	return text
}

// failed returns the gates that make the run fail.
func (r *report) failed() (failed []verdict) {
	for _, v := range r.Gates {
		if v.Measured && !v.Within {
			failed = append(failed, v)
		}
	}
	return failed
}

func (v verdict) String() string {
	return fmt.Sprintf("%-4s %-24s %s: %s", v.Target, v.status(), v.What, v.figures())
}

func (v verdict) figures() string {
	bound := "at least"
	if v.AtMost {
		bound = "at most"
	}
	want := fmt.Sprintf("want %s %s", bound, number(v.Want))
	if v.Known != "" {
		want += ", " + v.Worst
	}
	if v.WorstGot > 0 {
		want += ", was " + number(v.WorstGot) + " x"
	}
	if !v.Measured {
		return want
	}
	return number(v.Got) + ", " + want
}

func (v verdict) status() string {
	switch {
	case !v.Measured:
		return "not measured"
	case v.Met && v.Known != "":
		return "met, was known as missed"
	case v.Met:
		return "met"
	case v.Within && v.Known != "":
		return "missed, as known"
	case v.Within:
		return "missed, within 15 %"
	default:
		return "MISSED"
	}
}
