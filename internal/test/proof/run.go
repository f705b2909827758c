package proof

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
)

// The tiers.
const (
	Sim     = "sim"     // in memory, under a seeded scheduler
	Wire    = "wire"    // at a proxy before a real server
	Process = "process" // processes and servers that are killed or frozen
)

// Run is what one run has counted. Its JSON is one line of a file.
type Run struct {
	Tier    string  `json:"tier"`
	Name    string  `json:"name"`    // what is under test, such as "PostgreSQL 15, pgxstore"
	Command string  `json:"command"` // runs it again
	Seed    uint64  `json:"seed"`
	Date    string  `json:"date"` // 2006-01-02
	Commit  string  `json:"commit"`
	Seconds float64 `json:"seconds"`
	Cases   int     `json:"cases"` // in which at least one fault has fired
	Bad     int     `json:"bad"`   // of them: a message was lost or doubled, or another rule was broken
	Cells   []Cell  `json:"cells"`
}

// Cell counts the faults of one kind at one boundary.
type Cell struct {
	Boundary string `json:"boundary"` // where, such as "COMMIT"
	Action   string `json:"action"`   // what, such as "answer lost"
	Faults   int    `json:"faults"`   // that have fired while a message of the case was not done yet
	Cases    int    `json:"cases"`    // in which one has fired
	Bad      int    `json:"bad"`      // of these cases

	Least  int    `json:"least,omitempty"`  // of faults; 0 means 1
	Reason string `json:"reason,omitempty"` // why there are fewer: then that is no failure
}

// Faults returns how many faults of all cells have fired.
func (r *Run) Faults() (n int) {
	for _, c := range r.Cells {
		n += c.Faults
	}
	return n
}

// Cell returns the cell with these names. It adds one where there is none. The pointer is good until the next call.
func (r *Run) Cell(boundary, action string) *Cell {
	i := slices.IndexFunc(r.Cells, func(c Cell) bool { return c.Boundary == boundary && c.Action == action })
	if i < 0 {
		i = len(r.Cells)
		r.Cells = append(r.Cells, Cell{Boundary: boundary, Action: action})
	}
	return &r.Cells[i]
}

// Untried returns the cells that no fault has reached, and that give no reason.
func (r *Run) Untried() (names []string) {
	for _, c := range r.Cells {
		if c.Faults == 0 && c.Reason == "" {
			names = append(names, c.Boundary+", "+c.Action)
		}
	}
	slices.Sort(names)
	return names
}

// Add adds the counts of another part of the same run, such as that of another process. Runs of different tiers, or of
// different things under test, are not added.
func (r *Run) Add(other Run) error {
	if r.Tier != other.Tier || r.Name != other.Name {
		return fmt.Errorf("proof: add %s, %s, to %s, %s: these are different runs", other.Tier, other.Name, r.Tier, r.Name)
	}
	r.Cases += other.Cases
	r.Bad += other.Bad
	r.Seconds = max(r.Seconds, other.Seconds)
	for _, o := range other.Cells {
		c := r.Cell(o.Boundary, o.Action)
		c.Faults += o.Faults
		c.Cases += o.Cases
		c.Bad += o.Bad
		c.Least = max(c.Least, o.Least)
		c.Reason = cmp.Or(c.Reason, o.Reason)
	}
	return nil
}

// Check returns what keeps the run from being a proof: cases that went wrong, too few faults, a cell with too few that
// gives no reason, or one with enough that gives a reason.
func (r *Run) Check() error {
	var errs []error
	if r.Bad > 0 {
		errs = append(errs, fmt.Errorf("%d of %d cases are bad", r.Bad, r.Cases))
	}
	if r.Faults() == 0 || r.Cases == 0 {
		errs = append(errs, fmt.Errorf("%d faults in %d cases: the run has tried nothing", r.Faults(), r.Cases))
	}
	for _, c := range r.Cells {
		switch least := max(c.Least, 1); {
		case c.Faults < least && c.Reason == "":
			errs = append(errs, fmt.Errorf("%s, %s: %d faults, want %d or a reason", c.Boundary, c.Action, c.Faults, least))
		case c.Faults >= least && c.Reason != "":
			errs = append(errs, fmt.Errorf("%s, %s: %d faults, although it gives a reason for fewer than %d: %s",
				c.Boundary, c.Action, c.Faults, least, c.Reason))
		}
	}
	if len(errs) == 0 {
		return nil
	}
	return fmt.Errorf("%s, %s: %w", r.Tier, r.Name, errors.Join(errs...))
}

// Line returns the run as one line of JSON, with its cells in the order of their names.
func (r Run) Line() ([]byte, error) {
	r.Cells = slices.SortedFunc(slices.Values(r.Cells), func(a, b Cell) int {
		return cmp.Or(cmp.Compare(a.Boundary, b.Boundary), cmp.Compare(a.Action, b.Action))
	})
	var line bytes.Buffer
	encode := json.NewEncoder(&line) // ends with a newline
	encode.SetEscapeHTML(false)
	err := encode.Encode(r)
	return line.Bytes(), err
}

// Write writes the run to a file, in place of what it held.
func (r Run) Write(file string) error {
	line, err := r.Line()
	if err != nil {
		return err
	}
	return os.WriteFile(file, line, 0o666)
}

// Read reads the runs of files with a run on each line.
func Read(files ...string) (runs []Run, err error) {
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		for line := range bytes.Lines(text) {
			var r Run
			decode := json.NewDecoder(bytes.NewReader(line))
			decode.DisallowUnknownFields()
			if err := decode.Decode(&r); err != nil {
				return nil, fmt.Errorf("%s: %w", file, err)
			}
			runs = append(runs, r)
		}
	}
	return runs, nil
}
