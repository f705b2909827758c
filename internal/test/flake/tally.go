package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
)

// event is one line of go test -json.
type event struct{ Action, Test, Output string }

// name identifies a test. An empty test is the package itself, for a panic, a data race after the last test, or a leak.
type name struct{ pkg, test string }

// tally counts the runs and failures of each test.
type tally struct{ runs, failures map[name]int }

func newTally() *tally { return &tally{runs: map[name]int{}, failures: map[name]int{}} }

// add counts the tests in the output of one run and returns how many ran. If a sub-test failed, it counts only the
// sub-test and not its parents.
func (t *tally) add(pkg string, out []byte) (ran int, err error) {
	var failed []string
	for line := range bytes.Lines(out) {
		var e event
		if json.Unmarshal(line, &e) != nil {
			continue // a line that the program printed itself
		}
		switch {
		case e.Test == "":
		case e.Action == "fail":
			failed = append(failed, e.Test)
			fallthrough
		case e.Action == "pass" || e.Action == "skip":
			t.runs[name{pkg, e.Test}]++
			ran++
		case e.Action == "run":
			ran++
		}
	}
	for _, test := range failed {
		below := func(other string) bool { return strings.HasPrefix(other, test+"/") }
		if !slices.ContainsFunc(failed, below) {
			t.failures[name{pkg, test}]++
		}
	}
	return ran, nil
}

// missed counts a failed run without a failed test.
func (t *tally) missed(pkg string, out []byte) {
	for line := range bytes.Lines(out) {
		var e event
		if json.Unmarshal(line, &e) == nil && e.Action == "fail" && e.Test != "" {
			return
		}
	}
	t.failures[name{pkg, ""}]++
}

func (t *tally) failed() bool { return len(t.failures) > 0 }

func (t *tally) print(w io.Writer) {
	if !t.failed() {
		fmt.Fprintln(w, "no failures")
		return
	}
	names := make([]name, 0, len(t.failures))
	for n := range t.failures {
		names = append(names, n)
	}
	slices.SortFunc(names, func(a, b name) int {
		return cmp.Or(t.failures[b]-t.failures[a], cmp.Compare(a.pkg, b.pkg), cmp.Compare(a.test, b.test))
	})
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "failures\truns\tpackage\ttest")
	for _, n := range names {
		test, runs := n.test, fmt.Sprint(t.runs[n])
		if test == "" {
			test, runs = "(none: the package failed outside its tests)", "-"
		}
		fmt.Fprintf(table, "%d\t%s\t%s\t%s\n", t.failures[n], runs, n.pkg, test)
	}
	_ = table.Flush()
}

// plain returns the text that the tests printed.
func plain(out []byte) []byte {
	var text bytes.Buffer
	for line := range bytes.Lines(out) {
		var e event
		if json.Unmarshal(line, &e) != nil {
			text.Write(line)
			continue
		}
		text.WriteString(e.Output)
	}
	return text.Bytes()
}
