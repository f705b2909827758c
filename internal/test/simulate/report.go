package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/txonce/txonce/internal/test/proof"
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
		if c.Faults == 0 && o.cases != "" {
			continue
		}
		fmt.Printf("%-24s %-24s %8d faults in %8d cases\n", c.Boundary, c.Action, c.Faults, c.Cases)
		if c.Faults < o.least {
			few = append(few, fmt.Sprintf("%s: %s (%d)", c.Boundary, c.Action, c.Faults))
		}
	}
	fmt.Printf("%d cases, %d faults in %d cells, 0 bad, seed %d, in %v\n", sum.Cases, faults, len(sum.Cells), o.seed,
		took.Round(time.Second))
	if o.json != "" {
		if err := o.write(sum, took); err != nil {
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

func (o options) write(sum counts, took time.Duration) error {
	r := proof.Run{
		Tier: proof.Sim, Name: "consumers, relays, calls and Kafka positions in memory",
		Seed: uint64(o.seed), Cases: sum.Cases,
		Command: fmt.Sprintf("SEED=%d make sim SIM=\"-seconds %d\"", o.seed, o.seconds), Seconds: took.Seconds(),
		Date: time.Now().UTC().Format(time.DateOnly), Commit: proof.Commit(),
	}
	for _, c := range sum.Cells {
		r.Cells = append(r.Cells, proof.Cell{
			Boundary: c.Boundary, Action: c.Action, Faults: c.Faults, Cases: c.Cases, Least: o.least,
		})
	}
	return r.Write(o.json)
}
