package main

import "fmt"

// slack is by how much a figure may be off its target: figures of one run differ by as much.
const slack = .15

// A gate is a target that a figure must not miss by more than slack.
type gate struct {
	target      string // in the list of targets: P1 and so on
	table, way  string
	column      string
	base        string  // the way that the target is relative to; "": the figure itself
	least, most float64 // one of the two
	known       string  // why the target is known to be missed: it is listed, and is no failure
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
}

func (r *report) judge(gates []gate) {
	for _, g := range gates {
		v := verdict{Target: g.target, What: g.way, Want: g.least, Known: g.known}
		if g.base != "" {
			v.What += " / " + g.base
		}
		v.What += ", " + g.table + ", " + g.column
		c := r.cell(g.table, g.column, g.way)
		if c != nil {
			v.Got, v.Measured = c.Median, true
			if g.base != "" {
				base := r.cell(g.table, g.column, g.base)
				v.Measured = base != nil && len(base.Rounds) == len(c.Rounds)
				if v.Measured {
					v.Got = summarize(series{"": c.Rounds, "base": base.Rounds}.ratios("", "base")).Median
				}
			}
		}
		if g.most > 0 {
			v.Want, v.AtMost = g.most, true
			v.Met, v.Within = v.Got <= g.most, v.Got <= g.most*(1+slack)
		} else {
			v.Met, v.Within = v.Got >= g.least, v.Got >= g.least*(1-slack)
		}
		r.Gates = append(r.Gates, v)
	}
}

// failed returns the gates that make the run fail.
func (r *report) failed() (failed []verdict) {
	for _, v := range r.Gates {
		if v.Measured && !v.Within && v.Known == "" {
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
	case v.Known != "":
		return "missed, as known"
	case v.Within:
		return "missed, within 15 %"
	default:
		return "MISSED"
	}
}
