package main

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
)

// report is everything that a run has measured.
type report struct {
	Machine machine   `json:"machine"`
	Short   bool      `json:"short"`
	Whole   bool      `json:"whole"` // every section ran, in full
	Tables  []*table  `json:"tables"`
	Gates   []verdict `json:"gates"`
}

// table has a row for each way and a column for each condition.
type table struct {
	Name    string   `json:"name"`
	Unit    string   `json:"unit"`
	Columns []string `json:"columns"`
	Rows    []*row   `json:"rows"`
}

type row struct {
	Way   string           `json:"way"`
	Base  string           `json:"base,omitempty"`
	Cells map[string]*cell `json:"cells"` // by column
}

// cell is the figures of one way under one condition.
type cell struct {
	summary
	Rounds []float64 `json:"rounds"`
	Ratio  *summary  `json:"ratio,omitempty"` // to the row's base, of the ratios of each round
}

// table returns the table with this name, and adds it if there is none.
func (r *report) table(name, unit string) *table {
	if t := r.find(name); t != nil {
		return t
	}
	r.Tables = append(r.Tables, &table{Name: name, Unit: unit})
	return r.Tables[len(r.Tables)-1]
}

func (r *report) find(name string) *table {
	if i := slices.IndexFunc(r.Tables, func(t *table) bool { return t.Name == name }); i >= 0 {
		return r.Tables[i]
	}
	return nil
}

// add fills a column.
func (t *table) add(column string, ways []way, s series) {
	if !slices.Contains(t.Columns, column) {
		t.Columns = append(t.Columns, column)
	}
	for _, w := range ways {
		values := s[w.name]
		if len(values) == 0 {
			continue
		}
		c := &cell{summary: summarize(values), Rounds: values}
		if ratios := s.ratios(w.name, w.base); ratios != nil {
			sum := summarize(ratios)
			c.Ratio = &sum
		}
		t.row(w.name, w.base).Cells[column] = c
	}
}

// put fills one cell.
func (t *table) put(column, name string, values ...float64) {
	t.add(column, []way{{name: name}}, series{name: values})
}

func (t *table) row(name, base string) *row {
	i := slices.IndexFunc(t.Rows, func(r *row) bool { return r.Way == name })
	if i < 0 {
		i = len(t.Rows)
		t.Rows = append(t.Rows, &row{Way: name, Base: base, Cells: map[string]*cell{}})
	}
	return t.Rows[i]
}

// cell returns nil if the table does not have it.
func (r *report) cell(name, column, way string) *cell {
	t := r.find(name)
	if t == nil {
		return nil
	}
	for _, row := range t.Rows {
		if row.Way == way {
			return row.Cells[column]
		}
	}
	return nil
}

// String is a value and its quartiles, such as "1,900/s (1,850-1,960)" or ".71 x (.69-.73)".
func (c *cell) String(unit string) string {
	s := c.summary
	suffix := map[string]string{"messages/s": "/s", "ms": " ms"}[unit]
	if c.Ratio != nil {
		s, suffix = *c.Ratio, " x"
	}
	if s.Low == s.High {
		return number(s.Median) + suffix
	}
	return fmt.Sprintf("%s%s (%s-%s)", number(s.Median), suffix, number(s.Low), number(s.High))
}

// number writes two or three digits, as nothing here is more exact, and a separator of thousands.
func number(v float64) string {
	switch {
	case v >= 1000:
		round := 10.0
		for v/round >= 1000 {
			round *= 10
		}
		n := int64(v/round+.5) * int64(round)
		text := fmt.Sprint(n)
		for i := len(text) - 3; i > 0; i -= 3 {
			text = text[:i] + "," + text[i:]
		}
		return text
	case v >= 20:
		return fmt.Sprintf("%.0f", v)
	case v >= 3:
		return fmt.Sprintf("%.1f", v)
	default:
		return strings.Replace(fmt.Sprintf("%.2f", v), "0.", ".", 1)
	}
}

func (r *report) write(w io.Writer) error {
	for _, t := range r.Tables {
		fmt.Fprintf(w, "\n%s, %s\n", t.Name, t.caption())
		tab := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
		for _, line := range t.lines() {
			for _, c := range line {
				fmt.Fprintf(tab, "%s\t", c)
			}
			fmt.Fprintln(tab)
		}
		if err := tab.Flush(); err != nil {
			return err
		}
	}
	fmt.Fprintln(w)
	for _, v := range r.Gates {
		fmt.Fprintln(w, v)
	}
	return nil
}

// lines returns the texts of a table, with its head.
func (t *table) lines() [][]string {
	lines := [][]string{append([]string{""}, t.Columns...)}
	for _, row := range t.Rows {
		name := row.Way
		if row.Base != "" {
			name += ", relative to " + row.Base
		}
		line := []string{name}
		for _, column := range t.Columns {
			text := ""
			if c := row.Cells[column]; c != nil {
				text = c.String(t.Unit)
			}
			line = append(line, text)
		}
		lines = append(lines, line)
	}
	return lines
}

func (r *report) writeJSON(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "\t")
	return e.Encode(r)
}
