// Command mutants breaks one promise at a time and checks that a test fails. Each row of rows_*.go names a function or
// a statement of SQL, says what is wrong with it, and names the test. The change is in a build overlay, so the checkout
// is never changed.
//
//	go run ./internal/test/mutants                         # all; needs make services-up
//	go run ./internal/test/mutants -from 118               # continue an interrupted run
//	go run ./internal/test/mutants -run claim              # the promises that contain "claim"
//	go run ./internal/test/mutants -package adapters/kafka # the promises whose tests are in this folder or below it
//	go run ./internal/test/mutants -sim                    # those that the simulation must notice; needs no servers
//	go run ./internal/test/mutants -list > docs/guarantees.md
//
// What it builds is cached in .mutants, which grows to some GB and may be deleted at any time. The first mutation of a
// package takes a minute longer, because the package is built without a mutation first.
//
// It prints each promise with a number within the selection, and at the end those that no test noticed; with -json, a
// line of JSON per promise.
//
// It exits 1 if a named test passes, or if a row names a function, a text or a test that does not exist.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"time"
)

func main() {
	run := flag.String("run", "", "run only promises that contain this `text`")
	pkg := flag.String("package", "", "run only promises whose test is in this `folder` or below it")
	from := flag.Int("from", 1, "continue at promise `N` of those that -run and -package select")
	verbose := flag.Bool("v", false, "print the output of each test")
	asJSON := flag.Bool("json", false, "print a line of JSON per promise")
	sim := flag.Bool("sim", false, "run the simulation, and no other test, for the promises that it must notice; needs no servers")
	seeds := flag.Int("seeds", 0, "with -sim: measure the first case that fails with each of the seeds 1 to `N`")
	most := flag.Int("most", 100_000, "with -seeds: the most cases")
	list := flag.Bool("list", false, "print docs/guarantees.md and run nothing")
	flag.Parse()
	if *list {
		fmt.Fprint(os.Stdout, guarantees())
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	rows := selected(*run, *pkg)
	if *sim {
		rows = bySimulation(rows)
	}
	if *sim && *seeds > 0 {
		os.Exit(measure(ctx, rows, *seeds, *most))
	}
	os.Exit(try(ctx, rows, *from, printer{*verbose, *asJSON}))
}

// selected returns the rows whose promise contains text and whose test is in folder or below it. Empty means any.
func selected(text, folder string) (rows []row) {
	for _, r := range allRows() {
		_, in := r.test()
		below := folder == "" || strings.HasPrefix(in+"/", strings.TrimSuffix(folder, "/")+"/")
		if below && strings.Contains(r.promise, text) {
			rows = append(rows, r)
		}
	}
	return rows
}

// try tries rows[from-1:] and returns the exit code.
func try(ctx context.Context, rows []row, from int, print printer) int {
	if from < 1 || from > len(rows) {
		fmt.Fprintf(os.Stderr, "mutants: %d promises are selected, and -from is %d\n", len(rows), from)
		return 1
	}
	root, err := os.Getwd()
	if err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		return 1
	}
	cache, err := openCache()
	if err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		return 1
	}
	var missed []string
	for i := from - 1; i < len(rows); i++ {
		began := time.Now()
		res := rows[i].try(ctx, root, cache)
		if ctx.Err() != nil {
			fmt.Fprintf(os.Stderr, "interrupted; continue with -from %d\n", i+1)
			return 1
		}
		if res.err != nil {
			missed = append(missed, rows[i].promise)
		}
		print.row(i+1, len(rows), rows[i], res, time.Since(began))
	}
	print.end(len(rows)-from+1, missed)
	return min(len(missed), 1)
}

// printer prints results.
type printer struct{ verbose, json bool }

func (p printer) row(n, of int, r row, res result, took time.Duration) {
	if p.verbose {
		fmt.Fprintln(os.Stderr, res.output)
	}
	if p.json {
		line := struct {
			Promise string  `json:"promise"`
			Broken  string  `json:"broken"`
			Test    string  `json:"test"`
			Caught  bool    `json:"caught"`
			Seconds float64 `json:"seconds"`
			Error   string  `json:"error,omitempty"`
		}{Promise: r.promise, Broken: r.name(), Test: r.fails, Caught: res.err == nil, Seconds: took.Seconds()}
		if res.err != nil {
			line.Error = res.err.Error()
		}
		_ = json.NewEncoder(os.Stdout).Encode(line)
		return
	}
	verdict := "noticed by " + r.fails
	if res.rule != "" {
		verdict += ": " + res.rule
	}
	if res.err != nil {
		verdict = "NOT NOTICED: " + res.err.Error()
	}
	fmt.Fprintf(os.Stdout, "%3d of %d  %5.1fs  %s\n                    %s\n", n, of, took.Seconds(), r.promise, verdict)
}

func (p printer) end(tried int, missed []string) {
	if p.json {
		return
	}
	for _, promise := range missed {
		fmt.Fprintln(os.Stdout, "not noticed:", promise)
	}
	fmt.Fprintf(os.Stdout, "%d passed, %d failed\n", tried-len(missed), len(missed))
}
