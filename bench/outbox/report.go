package main

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"text/tabwriter"
)

// figure is one measured value, the median over rounds.
type figure struct {
	Question string    `json:"question"`
	System   string    `json:"system"`
	Unit     string    `json:"unit"`
	Value    float64   `json:"value"`
	Ratio    float64   `json:"ratio,omitempty"` // to the value that the question compares with
	Target   string    `json:"target,omitempty"`
	Missed   bool      `json:"missed,omitempty"` // by more than the gate allows
	Rounds   []float64 `json:"rounds"`
}

type report struct {
	Figures []figure `json:"figures"`
}

func (r *report) add(question, system, unit string, rounds []float64) *figure {
	sorted := slices.Sorted(slices.Values(rounds))
	r.Figures = append(r.Figures, figure{Question: question, System: system, Unit: unit, Value: sorted[len(sorted)/2], Rounds: rounds})
	return &r.Figures[len(r.Figures)-1]
}

// find returns nil if there is no such figure.
func (r *report) find(question, system string) *figure {
	for i := range r.Figures {
		if f := &r.Figures[i]; f.Question == question && f.System == system {
			return f
		}
	}
	return nil
}

// A target is the required value of a figure. The gate allows a deviation of 15 %.
type target struct {
	question, system string
	over             string // the system that the ratio is relative to; empty: the value itself
	least, most      float64
}

func (r *report) judge(targets []target) {
	for _, t := range targets {
		f := r.find(t.question, t.system)
		if f == nil {
			continue
		}
		v, sign := f.Value, "≤"
		if t.over != "" {
			base := r.find(t.question, t.over)
			if base == nil {
				continue
			}
			f.Ratio = f.Value / base.Value
			v = f.Ratio
		}
		bound := t.most
		if t.least > 0 {
			bound, sign = t.least, "≥"
			f.Missed = f.Missed || v < t.least*.85
		} else {
			f.Missed = f.Missed || v > t.most*1.15
		}
		if f.Target != "" {
			f.Target += ", "
		}
		if t.over == "" {
			f.Target += fmt.Sprintf("%s %g", sign, bound)
		} else {
			f.Target += fmt.Sprintf("%s %g x %s: %.2f", sign, bound, t.over, v)
		}
	}
}

func (r *report) missed() (n int) {
	for _, f := range r.Figures {
		if f.Missed {
			n++
		}
	}
	return n
}

func (r *report) write(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	question := ""
	for _, f := range r.Figures {
		if f.Question != question {
			question = f.Question
			fmt.Fprintf(t, "\n%s\t\t%s\t\n", question, f.Unit)
		}
		verdict := f.Target
		if f.Missed {
			verdict += "  MISSED"
		}
		fmt.Fprintf(t, "  %s\t%s\t\t%s\n", f.System, number(f.Value), verdict)
	}
	return t.Flush()
}

func number(v float64) string {
	if v >= 100 {
		return fmt.Sprintf("%.0f", v)
	}
	return fmt.Sprintf("%.2f", v)
}

func (r *report) writeJSON(w io.Writer) error { return json.NewEncoder(w).Encode(r) }
