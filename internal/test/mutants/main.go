// Command mutants breaks one guarantee at a time and shows that a test notices. A guarantee that no test can lose is a
// hope. Each mutation edits one place of one file, in a build overlay: the checkout is never touched.
//
//	go run ./internal/test/mutants            # all; needs make services-up
//	go run ./internal/test/mutants -run claim # those whose name contains "claim"
//	go run ./internal/test/mutants -list > docs/guarantees.md
//
// It exits 1 when a mutant survives, when another case than the one named is the only one to fail, or when the text that a
// mutation replaces is not found exactly once.
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
	run := flag.String("run", "", "only mutations whose name contains this")
	verbose := flag.Bool("v", false, "print the output of each test")
	list := flag.Bool("list", false, "print the guarantees and their tests as docs/guarantees.md has them, and run nothing")
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
