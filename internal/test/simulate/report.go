package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"
)

// counts are what TestSimulation writes.
type counts struct {
	Cases int    `json:"cases"`
	Cells []cell `json:"cells"`
}

type cell struct {
	Boundary string `json:"boundary"`
	Action   string `json:"action"`
	Faults   int    `json:"faults"`
	Cases    int    `json:"cases"`
}

// row is a line of the JSON file.
type row struct {
	Tier string `json:"tier"`
	cell
	Bad    int    `json:"bad"`
	Seed   int    `json:"seed"`
	Date   string `json:"date"`
	Commit string `json:"commit"`
}

// add adds up the counts of all processes, which had different cases.
func add(all []counts) (sum counts) {
	for _, c := range all {
		sum.Cases += c.Cases
		for _, from := range c.Cells {
			i := slices.IndexFunc(sum.Cells, func(to cell) bool {
				return to.Boundary == from.Boundary && to.Action == from.Action
			})
			if i < 0 {
				sum.Cells = append(sum.Cells, from)
				continue
			}
			sum.Cells[i].Faults += from.Faults
			sum.Cells[i].Cases += from.Cases
		}
	}
	return sum
}

// report prints the counts, and fails if they show too little.
func (o options) report(sum counts, took time.Duration) error {
	faults := 0
	var few []string
	for _, c := range sum.Cells {
		faults += c.Faults
		fmt.Printf("%-10s %-24s %8d faults in %8d cases\n", c.Boundary, c.Action, c.Faults, c.Cases)
		if c.Faults < o.least {
			few = append(few, fmt.Sprintf("%s: %s (%d)", c.Boundary, c.Action, c.Faults))
		}
	}
	fmt.Printf("%d cases, %d faults in %d cells, 0 bad, seed %d, in %v\n", sum.Cases, faults, len(sum.Cells), o.seed,
		took.Round(time.Second))
	if o.json != "" {
		if err := o.write(sum); err != nil {
			return err
		}
	}
	switch {
	case o.cases != "":
		return nil
	case faults == 0:
		return errors.New("no fault happened: this has shown nothing")
	case len(few) > 0:
		return fmt.Errorf("these happened less than %d times: %s", o.least, strings.Join(few, ", "))
	}
	return nil
}

func (o options) write(sum counts) error {
	out, err := exec.Command("git", "rev-parse", "--short", "HEAD").Output()
	if err != nil {
		return fmt.Errorf("which commit is it: %w", err)
	}
	var b strings.Builder
	enc := json.NewEncoder(&b)
	for _, c := range sum.Cells {
		err := enc.Encode(row{
			Tier: "sim", cell: c, Seed: o.seed, Date: time.Now().UTC().Format(time.DateOnly),
			Commit: strings.TrimSpace(string(out)),
		})
		if err != nil {
			return err
		}
	}
	return os.WriteFile(o.json, []byte(b.String()), 0o644)
}
