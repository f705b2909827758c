// Command mutants breaks one guarantee at a time and checks that a test fails. Each mutation edits one file in a build
// overlay, so the checkout is never changed.
//
//	go run ./internal/test/mutants            # all; needs make services-up
//	go run ./internal/test/mutants -run claim # the mutations whose names contain "claim"
//	go run ./internal/test/mutants -list > docs/guarantees.md
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
	verbose := flag.Bool("v", false, "print the output of each test")
	list := flag.Bool("list", false, "print docs/guarantees.md and run nothing")
	flag.Parse()
	if *list {
		fmt.Fprint(os.Stdout, guarantees())
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	os.Exit(try(ctx, *run, *verbose))
}

func try(ctx context.Context, only string, verbose bool) (exit int) {
	tried, caught := 0, 0
	for _, m := range mutations {
		if !strings.Contains(m.name, only) || ctx.Err() != nil {
			continue
		}
		tried++
		began := time.Now()
		result := m.try(ctx)
		if verbose {
			fmt.Fprintln(os.Stderr, result.output)
		}
		verdict := "caught by " + m.fails
		if result.err != nil {
			verdict = "NOT CAUGHT: " + result.err.Error()
		} else {
			caught++
		}
		fmt.Fprintf(os.Stdout, "%-58s %5.1fs  %s\n", m.name, time.Since(began).Seconds(), verdict)
	}
	fmt.Fprintf(os.Stdout, "%d passed, %d failed\n", caught, tried-caught)
	if tried == 0 || caught < tried {
		return 1
	}
	return 0
}
