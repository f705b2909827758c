// Command mutants breaks one guarantee at a time and checks that a test fails. Each mutation edits one file in a build
// overlay, so the checkout is never changed.
//
//	go run ./internal/test/mutants                         # all; needs make services-up
//	go run ./internal/test/mutants -from 118               # continue an interrupted run
//	go run ./internal/test/mutants -run claim              # the mutations whose names contain "claim"
//	go run ./internal/test/mutants -package adapters/kafka # the mutations whose tests are in this package or below it
//	go run ./internal/test/mutants -list > docs/guarantees.md
//
// What it builds is cached in .mutants, which grows to some GB and may be deleted at any time. The first mutation of a package takes a minute longer, because
// the package is built without a mutation first.
//
// It prints a line per mutation, numbered within the selection, and at the end the names of those that no test caught.
//
// It exits 1 if a mutated package passes its tests, if the named test is not among those that fail, or if the text that a
// mutation replaces does not occur exactly once.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"time"
)

func main() {
	run := flag.String("run", "", "run only mutations whose name contains this `text`")
	pkg := flag.String("package", "", "run only mutations whose test is in this `package` or below it, such as adapters/kafka")
	from := flag.Int("from", 1, "continue at mutation `N` of those that -run and -package select")
	verbose := flag.Bool("v", false, "print the output of each test")
	list := flag.Bool("list", false, "print docs/guarantees.md and run nothing")
	flag.Parse()
	if *list {
		fmt.Fprint(os.Stdout, guarantees())
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	os.Exit(try(ctx, selected(*run, *pkg), *from, *verbose))
}

// selected returns the mutations whose name contains name and whose test is in the package pkg or below it. Empty means any.
func selected(name, pkg string) (ms []mutation) {
	for _, m := range mutations {
		if strings.Contains(m.name, name) && (pkg == "" || strings.HasPrefix(m.pkg+"/", strings.TrimSuffix(pkg, "/")+"/")) {
			ms = append(ms, m)
		}
	}
	return ms
}

// try tries ms[from-1:] and returns the exit code.
func try(ctx context.Context, ms []mutation, from int, verbose bool) int {
	if from < 1 || from > len(ms) {
		fmt.Fprintf(os.Stderr, "mutants: %d mutations are selected, and -from is %d\n", len(ms), from)
		return 1
	}
	cache, err := openCache()
	if err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		return 1
	}
	var missed []string
	for i := from - 1; i < len(ms); i++ {
		m, began := ms[i], time.Now()
		result := m.try(ctx, cache)
		if ctx.Err() != nil {
			fmt.Fprintf(os.Stderr, "interrupted; continue with -from %d\n", i+1)
			return 1
		}
		if verbose {
			fmt.Fprintln(os.Stderr, result.output)
		}
		verdict := "caught by " + m.fails
		if result.err != nil {
			verdict = "NOT CAUGHT: " + result.err.Error()
			missed = append(missed, m.name)
		}
		fmt.Fprintf(os.Stdout, "%3d of %d  %-58s %5.1fs  %s\n", i+1, len(ms), m.name, time.Since(began).Seconds(), verdict)
	}
	for _, name := range missed {
		fmt.Fprintln(os.Stdout, "not caught:", name)
	}
	fmt.Fprintf(os.Stdout, "%d passed, %d failed\n", len(ms)-from+1-len(missed), len(missed))
	return min(len(missed), 1)
}
